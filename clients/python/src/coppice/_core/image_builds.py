"""Builds of images from steps: what is sent, and the events of their log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from coppice._core.frames import parse_frame
from coppice._core.paths import encode_segment
from coppice._core.records import parse_record
from coppice.errors import CoppiceError
from coppice.models import ImageBuildInfo

BUILDS_PATH = "/v1/images/builds"
CONTEXTS_PATH = "/v1/images/contexts"
MAX_BUILD_EVENT_LENGTH = 2**20
"""In characters. An event has at most 64 KiB of output, which JSON can make six times as long."""
BUILD_LOG_SILENCE_S = 60.0
"""The service sends an event or a comment at least every 15 s."""

parse_build = parse_record(ImageBuildInfo)


class _CopyStepBase(TypedDict):
    from_path: str
    to: str


class CopyStep(_CopyStepBase, total=False):
    """Files that a step copies into the image.

    - `from_path`: file or directory of the context; `*` and `?` stand for characters of one name. Of a directory, the
      content is copied.
    - `to`: target in the image; with a slash at its end, or if it is a directory: into it
    - `owner`: name, uid, `name:group` or `uid:gid`; default `0:0`
    - `mode`: permissions in octal, such as `755`; default: those in the context
    """

    owner: str
    mode: str


class BuildStep(TypedDict, total=False):
    """One step of a build: exactly one of these members.

    - `run`: a command for `/bin/sh -c`, or a program and its arguments; it must end with exit code 0
    - `copy`: files of the context
    - `env`: variables for the later steps and for the sandboxes of the image
    - `workdir`, `user`: directory and user of the later steps and of the sandboxes of the image
    """

    run: str | Sequence[str]
    copy: CopyStep
    env: Mapping[str, str]
    workdir: str
    user: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildEvent:
    """An event in the log of a build. A newer service may have more types."""

    type: str
    """`step`, `stdout`, `stderr`, `note`, or `end`, which is the last."""
    seq: int
    """Position in the log."""
    step: int | None = None
    """Index of the step that begins, or that wrote the output."""
    text: str | None = None
    """Of `step`, the step; of `note`, what the build does."""
    cached: bool | None = None
    """Of `step`: whether it does not run, because an earlier build has run the same steps."""
    data: str | None = None
    """Of `stdout` and `stderr`, the output."""
    build: ImageBuildInfo | None = None
    """Of `end`, the build."""


_parse_event = parse_record(BuildEvent)


def build_path(build_id: str) -> str:
    return f"{BUILDS_PATH}/{encode_segment(build_id, 'the id of the build')}"


def context_path(context_id: str) -> str:
    return f"{CONTEXTS_PATH}/{encode_segment(context_id, 'the id of the context')}"


def parse_build_event(text: str, label: str) -> BuildEvent:
    """Parses the data of one event. Raises `CoppiceError`, also for an event that says that the log has failed."""
    frame = parse_frame(text, label, 200)
    try:
        event = _parse_event(frame)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_log(label, error) from error
    if event.type == "end" and event.build is None:
        raise invalid_log(label, "the end has no build")
    return event


def invalid_log(label: str, why: object) -> CoppiceError:
    return CoppiceError(f"{label}: invalid log of a build: {why}", status=200, code="invalid_response")


def require_done(build: ImageBuildInfo) -> ImageBuildInfo:
    """Returns the build if it is done. Raises `CoppiceError` with the reason otherwise."""
    if build.status == "done":
        return build
    reason = f"the build is {build.status}" if build.error is None else build.error.message
    raise CoppiceError(f"build {build.id}: {reason}", status=0, code="build_failed", detail=reason)


def to_build_body(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a request to build. A build of a client never waits for its end in one request."""
    return {**request, "detached": True}
