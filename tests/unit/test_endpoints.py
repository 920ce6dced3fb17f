"""The pool of endpoints: turns, failover, retries, pauses, breakers, deadlines; on a clock of its own."""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from engramlog.engine.models.dialects import Dialect
from engramlog.engine.models.endpoints import Endpoints
from engramlog.engine.models.openai_endpoint import Overloaded, RequestRejected, name_of
from engramlog.schemas.errors import ConfigurationError, EngramlogError, ModelRefused, ModelUnavailable

Behaviour = Callable[[Mapping[str, Any]], Any]


class Topic(BaseModel):
    topic: str


class Time:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Scripted:
    """An endpoint that raises and answers as it was told; afterwards it answers rightly."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.script: deque[Any] = deque()
        self.always: Any = None
        self.bodies: list[Mapping[str, Any]] = []
        self.closed = False

    async def embeddings(self, body: Mapping[str, Any]) -> bytes:
        return await self._next(body, vectors_for(body))

    async def chat(self, body: Mapping[str, Any]) -> bytes:
        return await self._next(body, chat('{"topic": "cats"}'))

    async def close(self) -> None:
        self.closed = True

    async def _next(self, body: Mapping[str, Any], right: bytes) -> bytes:
        self.bodies.append(body)
        await asyncio.sleep(0)
        planned = self.script.popleft() if self.script else self.always
        if callable(planned):
            planned = planned(body)
        if isinstance(planned, BaseException):
            raise planned
        return right if planned is None else planned


def vectors_for(body: Mapping[str, Any]) -> bytes:
    data = [{"index": index, "embedding": [1.0, 2.0]} for index, _ in enumerate(body.get("input", ()))]
    return json.dumps({"data": data}).encode()


def chat(content: str | None, **message: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"content": content, **message}, "finish_reason": "stop"}]}).encode()


class Rig:
    def __init__(self, count: int = 1, **options: Any) -> None:
        self.time = Time()
        self.servers: list[Scripted] = []
        self.pool = Endpoints(
            [f"http://e{number}:1/v1" for number in range(count)],
            api_key=None,
            timeout_s=options.pop("timeout_s", 30.0),
            clock=self.time,
            sleep=self.time.sleep,
            chance=lambda: 1.0,
            connect=self._connect,
            **options,
        )

    def _connect(self, url: str, **_: Any) -> Scripted:
        self.servers.append(Scripted(name_of(url)))
        return self.servers[-1]

    async def embed(self, *texts: str) -> Any:
        return await self.pool.embed(texts or ("a",), model="m", dimensions=None)

    async def ask(self) -> Topic:
        return await self.pool.structured(model="m", system="s", user="u", schema=Topic)

    def asked(self) -> list[int]:
        return [len(server.bodies) for server in self.servers]


DOWN = ModelUnavailable("down")


async def test_endpoints_are_asked_in_turn() -> None:
    rig = Rig(3)
    for _ in range(6):
        await rig.embed()
    assert rig.asked() == [2, 2, 2]
    assert rig.time.pauses == []


async def test_the_next_endpoint_takes_over_at_once() -> None:
    rig = Rig(2)
    rig.servers[0].always = DOWN
    for _ in range(4):
        await rig.embed()
    assert rig.time.pauses == []
    assert rig.servers[1].bodies != []


async def test_pauses_double_with_jitter_and_a_success_ends_them() -> None:
    rig = Rig()
    rig.servers[0].script.extend([DOWN, DOWN])
    await rig.embed()
    assert rig.time.pauses == [0.25, 0.5]


async def test_jitter_makes_a_pause_shorter_by_half_at_most() -> None:
    rig = Rig()
    rig.pool._pool._chance = lambda: 0.0
    rig.servers[0].script.append(DOWN)
    await rig.embed()
    assert rig.time.pauses == [0.125]


async def test_three_failures_in_a_row_rest_the_endpoint_and_nobody_waits() -> None:
    rig = Rig()
    rig.servers[0].always = DOWN
    with pytest.raises(ModelUnavailable, match="rests"):
        await rig.embed()
    assert rig.asked() == [3]
    before = rig.time.now
    for _ in range(10):
        with pytest.raises(ModelUnavailable, match="rests"):
            await rig.embed()
    assert (rig.asked(), rig.time.now) == ([3], before)


async def test_after_the_rest_one_call_tries_and_rests_double() -> None:
    rig = Rig()
    rig.servers[0].always = DOWN
    for rest in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        with pytest.raises(ModelUnavailable):
            await rig.embed()
        asked = rig.asked()
        rig.time.now += rest - 0.01
        with pytest.raises(ModelUnavailable, match="rests"):
            await rig.embed()
        assert rig.asked() == asked
        rig.time.now += 0.02
    rig.servers[0].always = None
    await rig.embed()
    rig.servers[0].script.extend([DOWN, DOWN])
    await rig.embed()  # closed again: two failures are forgiven


async def test_only_one_call_tries_whether_a_resting_endpoint_is_back() -> None:
    rig = Rig()
    rig.servers[0].always = DOWN
    with pytest.raises(ModelUnavailable):
        await rig.embed()
    rig.time.now += 1.5
    results = await asyncio.gather(*(rig.embed() for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, ModelUnavailable) for result in results)
    assert rig.asked() == [4]


async def test_a_cancelled_try_does_not_block_the_next_one() -> None:
    rig = Rig()
    rig.servers[0].always = DOWN
    with pytest.raises(ModelUnavailable):
        await rig.embed()
    rig.time.now += 1.5
    rig.servers[0].always = None
    trying = asyncio.create_task(rig.embed())
    await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert (await rig.embed()).shape == (1, 2)


async def test_retry_after_is_waited_for() -> None:
    rig = Rig()
    rig.servers[0].script.append(Overloaded("busy", 7.0))
    await rig.embed()
    assert rig.time.pauses == [7.0]


async def test_retry_after_behind_the_deadline_fails_at_once() -> None:
    rig = Rig(timeout_s=5.0)
    rig.servers[0].script.append(Overloaded("busy", 7.0))
    with pytest.raises(ModelUnavailable, match=r"busy.*behind the deadline"):
        await rig.embed()
    assert rig.time.pauses == []


async def test_who_asked_for_a_pause_is_left_alone_while_others_answer() -> None:
    rig = Rig(2)
    rig.servers[0].script.append(Overloaded("busy", 7.0))
    for _ in range(6):
        await rig.embed()
    assert rig.asked() == [1, 6]
    rig.time.now += 8
    await rig.embed()
    await rig.embed()
    assert rig.asked()[0] == 2


async def test_rounds_are_bounded_where_failures_are_not_in_a_row() -> None:
    rig = Rig(2)

    def failing(body: Mapping[str, Any]) -> Any:
        rig.pool._pool.slots[0].breaker.succeeded()  # another call succeeded meanwhile
        rig.pool._pool.slots[1].breaker.succeeded()
        return DOWN

    for server in rig.servers:
        server.always = failing
    with pytest.raises(ModelUnavailable, match="no answer in 4 rounds"):
        await rig.embed()
    assert rig.asked() == [4, 4]


@pytest.mark.parametrize("error", [ModelRefused("no"), RequestRejected("no"), ConfigurationError("key")])
async def test_what_is_refused_for_good_is_not_asked_again(error: EngramlogError) -> None:
    rig = Rig(2)
    rig.servers[0].always = error
    rig.servers[1].always = error
    for _ in range(4):
        with pytest.raises(type(error)):
            await rig.embed()
    assert rig.asked() == [2, 2]


async def test_a_stalled_endpoint_leaves_time_for_the_next() -> None:
    rig = Rig(2, timeout_s=0.2)

    async def stall(body: Mapping[str, Any]) -> bytes:
        await asyncio.Event().wait()
        return b""

    rig.servers[0].embeddings = stall  # type: ignore[method-assign]
    assert (await rig.embed()).shape == (1, 2)
    assert rig.asked() == [0, 1]


async def test_a_stalled_endpoint_alone_is_unavailable_at_the_deadline() -> None:
    rig = Rig(timeout_s=0.05)

    async def stall(body: Mapping[str, Any]) -> bytes:
        await asyncio.Event().wait()
        return b""

    rig.servers[0].embeddings = stall  # type: ignore[method-assign]
    rig.pool._pool._clock = asyncio.get_running_loop().time
    with pytest.raises(ModelUnavailable, match=r"http://e0:1/v1 gave no answer within 0\.[01] s"):
        await rig.embed()


async def test_no_more_calls_than_allowed_are_under_way() -> None:
    rig = Rig(2, concurrency=3)
    now = most = 0

    async def counted(body: Mapping[str, Any]) -> bytes:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return vectors_for(body)

    for server in rig.servers:
        server.embeddings = counted  # type: ignore[method-assign]
    await asyncio.gather(*(rig.embed() for _ in range(20)))
    assert most == 3


async def test_who_waits_too_long_for_a_turn_is_told() -> None:
    rig = Rig(concurrency=1, timeout_s=0.05)
    go_on = asyncio.Event()

    async def slow(body: Mapping[str, Any]) -> bytes:
        await go_on.wait()
        return vectors_for(body)

    rig.servers[0].embeddings = slow  # type: ignore[method-assign]
    first = asyncio.create_task(rig.pool.embed(["a"], model="m", dimensions=None, timeout_s=30))
    await asyncio.sleep(0)
    with pytest.raises(ModelUnavailable, match="too many questions wait"):
        await rig.embed()
    go_on.set()
    assert (await first).shape == (1, 2)


async def test_no_texts_no_request() -> None:
    rig = Rig()
    assert (await rig.pool.embed([], model="m", dimensions=None)).shape == (0, 0)
    assert rig.asked() == [0]


async def test_texts_are_sent_without_nul_and_halves_of_characters() -> None:
    rig = Rig()
    await rig.embed("a\0b", "\ud83d\udc4b\ud800", "猫")
    assert rig.servers[0].bodies[0]["input"] == ["ab", "👋", "猫"]


async def test_dimensions_are_sent_only_if_they_were_asked_for() -> None:
    rig = Rig()
    await rig.pool.embed(["a"], model="m", dimensions=None)
    await rig.pool.embed(["a"], model="m", dimensions=2)
    assert [body.get("dimensions") for body in rig.servers[0].bodies] == [None, 2]


async def test_stopping_closes_every_endpoint() -> None:
    rig = Rig(2)
    await rig.pool.stop()
    assert [server.closed for server in rig.servers] == [True, True]


@pytest.mark.parametrize("bad", ["", "{broken", '{"topic": 3}', '{"other": "x"}', "[]", None], ids=repr)
async def test_an_answer_that_does_not_fit_is_asked_for_once_more(bad: str | None) -> None:
    rig = Rig()
    rig.servers[0].script.append(chat(bad))
    assert await rig.ask() == Topic(topic="cats")
    assert "does not fit" in rig.servers[0].bodies[1]["messages"][-1]["content"]
    rig.servers[0].always = chat(bad)
    with pytest.raises(ModelRefused):
        await rig.ask()
    assert rig.asked() == [4]


@pytest.mark.parametrize(
    "content",
    [
        '{"topic": "cats"}',
        '```json\n{"topic": "cats"}\n```',
        '```\n{"topic": "cats"}```',
        '<think>hm {</think>\n{"topic": "cats"}\n',
    ],
)
async def test_fences_and_thoughts_around_an_answer_are_taken_off(content: str) -> None:
    rig = Rig()
    rig.servers[0].script.append(chat(content))
    assert await rig.ask() == Topic(topic="cats")
    assert rig.asked() == [1]


async def test_a_model_that_declines_or_is_cut_off_is_refused() -> None:
    rig = Rig()
    rig.servers[0].always = chat(None, refusal="I will not")
    with pytest.raises(ModelRefused, match="declined"):
        await rig.ask()
    cut_off = json.dumps({"choices": [{"message": {"content": '{"topic": "ca'}, "finish_reason": "length"}]}).encode()
    rig.servers[0].always = cut_off
    with pytest.raises(ModelRefused, match="cut off"):
        await rig.ask()


def refusing(*names: str) -> Behaviour:
    def answer(body: Mapping[str, Any]) -> Any:
        form = body.get("response_format", {}).get("type")
        for name in names:
            if name == form:
                return RequestRejected(f"400: response_format {name} is not supported")
            if name in body:
                return RequestRejected(f"400: unsupported parameter {name}")
        return None

    return answer


@pytest.mark.parametrize(
    ("refused", "dialect"),
    [
        ([], Dialect()),
        (["json_schema"], Dialect("json_object")),
        (["json_schema", "json_object"], Dialect("text")),
        (["max_tokens"], Dialect(limit="max_completion_tokens")),
        (["temperature", "max_tokens"], Dialect(limit="max_completion_tokens", temperature=False)),
    ],
    ids=lambda value: "+".join(value) or "nothing" if isinstance(value, list) else "",
)
async def test_what_an_endpoint_refuses_is_asked_more_simply_and_remembered(
    refused: list[str], dialect: Dialect
) -> None:
    rig = Rig()
    rig.servers[0].always = refusing(*refused)
    assert await rig.ask() == Topic(topic="cats")
    assert rig.asked() == [1 + len(refused)]
    await rig.ask()
    assert rig.asked() == [2 + len(refused)]
    assert rig.pool._pool.slots[0].dialect == dialect


async def test_without_a_schema_parameter_the_prompt_tells_the_schema() -> None:
    rig = Rig()
    rig.servers[0].always = refusing("json_schema")
    await rig.ask()
    strict, simple = rig.servers[0].bodies
    assert strict["messages"][0]["content"] == "s"
    assert '"topic"' in simple["messages"][0]["content"]
    assert "JSON" in simple["messages"][0]["content"]


async def test_a_request_refused_for_its_input_changes_nothing_for_the_next() -> None:
    rig = Rig()
    rig.servers[0].always = RequestRejected("400: the input is too long")
    with pytest.raises(ModelRefused, match="too long"):
        await rig.ask()
    assert rig.pool._pool.slots[0].dialect == Dialect()


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(ConfigurationError, match="set ENGRAMLOG_X"):
        Endpoints([], api_key=None, timeout_s=1, key_setting="ENGRAMLOG_X")


def test_a_key_that_cannot_be_one_is_refused_without_telling_it() -> None:
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_X: a key is printable ASCII") as caught:
        Endpoints([], api_key="hunter2\n", timeout_s=1, key_setting="ENGRAMLOG_X")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://host:8000/v1/", "http://host:8000/v1"),
        ("https://host/v1?key=hunter2#hunter2", "https://host/v1"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_endpoints_name_holds_no_secret(url: str, name: str) -> None:
    assert name_of(url) == name


@pytest.mark.parametrize("url", ["host:8000", "ftp://host", "http://", "http://host:port", "user:hunter2@host", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://host:8000/v1") as caught:
        name_of(url)
    assert "hunter2" not in str(caught.value)


def test_a_password_in_a_url_is_refused_without_telling_it() -> None:
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_X") as caught:
        Endpoints(["https://user:hunter2@host/v1"], api_key=None, timeout_s=1, key_setting="ENGRAMLOG_X")
    assert "hunter2" not in str(caught.value)
