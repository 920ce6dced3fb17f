"""Writes camel_records.json: what CAMEL itself makes of its messages, for test_formats_camel.py.

CAMEL is no dependency of the tests; an environment of its own makes the file anew, from this folder::

    python3 -m venv camel-env
    camel-env/bin/pip install camel-ai==0.2.90 'mcp<2' 'qdrant-client<1.20' python-dotenv
    camel-env/bin/python camel_records.py

``records`` are dicts of ``MemoryRecord.to_dict()``, each with the message that CAMEL would send to OpenAI for it (null
where CAMEL has none: it cannot send developers, and takes videos apart into frames); ``storage`` is the text of a file
that ``JsonStorage`` wrote, ``loaded`` what it says of it after ``MemoryRecord.from_dict()``.
"""

import json
import math
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import camel
from camel.memories import MemoryRecord
from camel.messages import BaseMessage, FunctionCallingMessage
from camel.prompts import TextPrompt
from camel.storages import JsonStorage
from camel.types import OpenAIBackendRole as Backend
from camel.types import RoleType
from PIL import Image
from pydantic import BaseModel

FILE = Path(__file__).with_suffix(".json")
TIMES = [1772323200.0, 1772323200.123456, 1772323200.1234567, 1772323200.9999998, 0.0, -86400.25, 1e-7, math.pi, 4e9]


class Weather(BaseModel):
    city: str
    degrees: float


class OurMessage(BaseMessage):
    """A subclass, as projects make them."""


def picture(mode: str, image_format: str | None) -> Image.Image:
    image = Image.new(mode, (2, 2), 1 if mode in {"L", "P"} else None)
    if image_format is None:
        return image
    file = BytesIO()
    image.save(file, format=image_format)
    return Image.open(BytesIO(file.getvalue()))


def base(role_type: RoleType, content: str, meta: dict[str, Any] | None = None, **more: Any) -> BaseMessage:
    return BaseMessage(role_type.value.capitalize(), role_type, meta, content, **more)


def calling(**more: Any) -> FunctionCallingMessage:
    return FunctionCallingMessage(
        "Agent", RoleType.ASSISTANT, more.pop("meta_dict", None), more.pop("content", ""), **more
    )


def call(number: int) -> dict[str, Any]:
    arguments = json.dumps({"城市": "北京", "n": number}, ensure_ascii=False)
    return {"id": f"call_{number}", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def messages() -> dict[str, tuple[BaseMessage, Backend]]:
    user, agent, system = RoleType.USER, RoleType.ASSISTANT, RoleType.SYSTEM
    images: list[Any] = ["https://example.org/a.png", "data:image/gif;base64,R0lGODlhAQABAAAAACw="]
    pixels = [
        picture("RGB", "PNG"),
        picture("RGB", "JPEG"),
        picture("RGBA", "PNG"),
        picture("P", "GIF"),
        picture("L", None),
    ]
    nested = {"tags": ["a", {"b": None}], "score": 0.1, "n": 3, "ok": True, "none": None}
    return {
        "user": (BaseMessage.make_user_message("User", "Hello 👋 世界"), Backend.USER),
        "user, empty": (BaseMessage.make_user_message("User", ""), Backend.USER),
        "user, no name": (BaseMessage.make_user_message("", "hi"), Backend.USER),
        "assistant": (BaseMessage.make_assistant_message("Assistant", "Hello."), Backend.ASSISTANT),
        "system": (BaseMessage.make_system_message("You are kind."), Backend.SYSTEM),
        "system, written by hand": (base(system, "You are kind."), Backend.SYSTEM),
        "developer": (base(system, "Be brief."), Backend.DEVELOPER),
        "as tool": (base(agent, "42"), Backend.TOOL),
        "as function": (base(agent, "42"), Backend.FUNCTION),
        "meta": (base(user, "hi", nested), Backend.USER),
        "meta, empty": (base(user, "hi", {}), Backend.USER),
        "meta over our keys": (
            base(user, "hi", {"role_name": 5, "content": "lost", "image_detail": "lost"}),
            Backend.USER,
        ),
        "meta named as a field": (
            base(user, "hi", {"reasoning_content": "why", "result": [1], "args": {}}),
            Backend.USER,
        ),
        "parsed, reasoning": (base(agent, "hi", parsed={"a": 1}, reasoning_content="because"), Backend.ASSISTANT),
        "critic": (base(RoleType.CRITIC, "no"), Backend.USER),
        "embodiment": (base(RoleType.EMBODIMENT, "moves"), Backend.ASSISTANT),
        "default": (base(RoleType.DEFAULT, "?"), Backend.USER),
        "subclass": (OurMessage("User", user, None, "mine"), Backend.USER),
        "prompt": (base(user, TextPrompt("Say {what}.")), Backend.USER),
        "images by url": (base(user, "look", image_list=images, image_detail="high"), Backend.USER),
        "images by pixel": (base(user, "look", image_list=[*pixels], image_detail="low"), Backend.USER),
        "images, mixed": (base(user, "look", image_list=[images[0], pixels[0]]), Backend.USER),
        "images, none": (base(user, "look", image_list=[]), Backend.USER),
        "video": (base(user, "watch", video_bytes=bytes(range(64)), video_detail="low"), Backend.USER),
        "video, empty": (base(user, "watch", video_bytes=b"", video_detail="high"), Backend.USER),
        "video and image": (base(user, "watch", video_bytes=b"\x00", image_list=[pixels[1]]), Backend.USER),
        "parallel calls": (base(agent, "", {"tool_calls": [call(n) for n in range(3)]}), Backend.ASSISTANT),
        "one call in meta": (base(agent, "I look.", {"tool_calls": [call(1)]}), Backend.ASSISTANT),
        "call": (
            calling(func_name="weather", args={"city": "北京", "n": 1.5}, tool_call_id="call_1"),
            Backend.ASSISTANT,
        ),
        "call, says": (calling(func_name="f", args={}, tool_call_id="c", content="I look."), Backend.ASSISTANT),
        "call without id": (calling(func_name="f", args={"a": [1, None]}), Backend.ASSISTANT),
        "call, signed": (
            calling(func_name="f", args={}, tool_call_id="c", extra_content={"google": {"thought_signature": "x"}}),
            Backend.ASSISTANT,
        ),
        "result, text": (calling(func_name="f", result="sunny", tool_call_id="call_1"), Backend.FUNCTION),
        "result, object": (calling(func_name="f", result=nested, tool_call_id="call_1"), Backend.FUNCTION),
        "result, number": (calling(func_name="f", result=2.5, tool_call_id="call_1"), Backend.FUNCTION),
        "result, false": (calling(func_name="f", result=False, tool_call_id="call_1"), Backend.FUNCTION),
        "result, empty": (calling(func_name="f", result="", tool_call_id="call_1"), Backend.FUNCTION),
        "result, none": (calling(func_name="f", tool_call_id="call_1"), Backend.FUNCTION),
        "result without id": (calling(func_name="f", result="sunny"), Backend.FUNCTION),
        "result, masked": (
            calling(func_name="f", result="secret", tool_call_id="c", mask_output=True),
            Backend.FUNCTION,
        ),
        "result, mask none": (calling(func_name="f", result="r", tool_call_id="c", mask_output=None), Backend.FUNCTION),
        "result and all else": (
            calling(
                func_name="f",
                args={"a": 1},
                result={"b": 2},
                tool_call_id="c" * 300,
                extra_content={"x": {}},
                content="said",
                meta_dict={"k": "v"},
                image_list=[images[0]],
            ),
            Backend.FUNCTION,
        ),
        "result as tool": (calling(func_name="f", result="sunny", tool_call_id="call_1"), Backend.TOOL),
        "calling, as user": (calling(func_name="f", args={}), Backend.USER),
        "calling, nothing": (calling(), Backend.ASSISTANT),
    }


def record(number: int, message: BaseMessage, role: Backend, **more: Any) -> MemoryRecord:
    stamp = {"timestamp": TIMES[number % len(TIMES)], "uuid": UUID(int=(number << 80) + (4 << 76) + (2 << 62))}
    return MemoryRecord(message=message, role_at_backend=role, **(stamp | more))


def to_openai(made: MemoryRecord) -> Any:
    if made.message.video_bytes is not None:
        return None
    try:
        return made.to_openai_message()
    except ValueError:
        return None


def stored() -> tuple[str, list[Any]]:
    """A file of JsonStorage, with enums and models of pydantic in it."""
    user = base(RoleType.USER, "hi", {"before": RoleType.CRITIC, "backend": Backend.USER})
    result = calling(func_name="weather", result=Weather(city="北京", degrees=-3.5), tool_call_id="call_1")
    made = [
        record(100, user, Backend.USER, extra_info={"task": "greet"}, agent_id="agent-1").to_dict(),
        record(101, result, Backend.FUNCTION, agent_id="agent-1").to_dict(),
        record(102, base(RoleType.ASSISTANT, 'Quotes " and \n lines', image_list=["u"]), Backend.ASSISTANT).to_dict(),
    ]
    made.append(
        {**made[0], "uuid": "not a uuid", "role_at_backend": Backend.USER, "agent_id": "agent-2"}
    )  # older files
    with tempfile.TemporaryDirectory() as folder:
        storage = JsonStorage(Path(folder, "memory.json"))
        storage.save(made)
        loaded = [MemoryRecord.from_dict(data) for data in storage.load()[:3]]
        return Path(folder, "memory.json").read_text(encoding="utf-8"), [to_openai(item) for item in loaded]


def main() -> None:
    records = []
    for number, (name, (message, role)) in enumerate(messages().items()):
        info = {"task": "t1", "note": "多"} if number % 3 == 0 else {}
        made = record(number, message, role, extra_info=info, agent_id="agent-1" if number % 2 else "")
        records.append({"name": name, "record": made.to_dict(), "openai": to_openai(made)})
    storage, loaded = stored()
    document = {"made_by": f"camel-ai {camel.__version__}", "records": records, "storage": storage, "loaded": loaded}
    FILE.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
