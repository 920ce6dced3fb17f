"""Two requests that aiokafka 0.14 lacks: it stops at Metadata 5, and reads DescribeGroups 3 as if it were 2."""
# mypy: disable-error-code="misc"
# (aiokafka is untyped: its classes are Any)

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

_TEXT = String("utf-8")


class _MetadataResponse(Response):
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("authorized_operations", Int32),
    )


class _MetadataStruct(RequestStruct):
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(_TEXT)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class MetadataRequest(Request[_MetadataStruct]):
    """Topics, and our rights on each.

    Args:
        topics: Full names.
    """

    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        """The request in the version that the broker knows."""
        return request_struct_class(self._topics, False, False, True)  # noqa: FBT003 - in the schema's order


class _GroupsResponse(Response):
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", _TEXT),
                ("state", _TEXT),
                ("protocol_type", _TEXT),
                ("protocol", _TEXT),
                (
                    "members",
                    Array(
                        ("member_id", _TEXT),
                        ("client_id", _TEXT),
                        ("client_host", _TEXT),
                        ("metadata", Bytes),
                        ("assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    )


class _GroupsStruct(RequestStruct):
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _GroupsResponse
    SCHEMA = Schema(("groups", Array(_TEXT)), ("include_authorized_operations", Boolean))


class GroupsRequest(Request[_GroupsStruct]):
    """Consumer groups, and our rights on each.

    Args:
        groups: Their ids.
    """

    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        """The request in the version that the broker knows."""
        return request_struct_class(self._groups, True)  # noqa: FBT003 - in the schema's order
