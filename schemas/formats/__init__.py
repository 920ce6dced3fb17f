"""Other formats to records and back: OpenAI chat messages, CAMEL's memory records, files of either, MEMORY.md.

Pure functions. What a format says goes into the record's fields; what has no field is kept beside them under a
reserved key (``_openai``, ``_camel``), so that it comes out as it went in. Fields win over what is kept: a record that
was corrected later gives the corrected message.
"""

from engramlog.schemas.formats.camel import from_camel, to_camel
from engramlog.schemas.formats.files import BadInput, Imported, read_camel, read_openai
from engramlog.schemas.formats.memory_md import read_memory_md, write_memory_md
from engramlog.schemas.formats.openai import from_openai, to_openai

__all__ = [
    "BadInput",
    "Imported",
    "from_camel",
    "from_openai",
    "read_camel",
    "read_memory_md",
    "read_openai",
    "to_camel",
    "to_openai",
    "write_memory_md",
]
