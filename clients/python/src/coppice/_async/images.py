"""Images and their preparation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from coppice._async.paged_list import AsyncPagedList
from coppice._async.transport import AsyncTransport
from coppice._core.builds import (
    BUILD_SILENCE_S,
    MAX_BUILD_EVENT,
    BuildProgress,
    broken_build,
    take_build_event,
)
from coppice._core.call import Call, json_call
from coppice._core.paths import build_query
from coppice._core.records import parse_list, parse_record
from coppice.models import ImageInfo, Shape


class AsyncImages:
    """The images that the service has prepared for your organization. Available as `client.images`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self) -> AsyncPagedList[ImageInfo]:
        """Lists the images that your organization built or used, and the built-in ones.

        Example:
            async for image in client.images.list():
                print(image.image, image.size_bytes)
        """
        return AsyncPagedList(self._transport, path="/v1/images", parse_page=parse_list(parse_record(ImageInfo)))

    async def build(
        self,
        image: str,
        *,
        shapes: Sequence[Shape] | None = None,
        on_progress: Callable[[BuildProgress], object] | None = None,
    ) -> ImageInfo:
        """Pulls and prepares an image, the default shape and the given shapes, so that later creates are fast.

        Each shape may take seconds. `on_progress` is called with the progress, at most a few times a second; the call
        then has no time limit while the service sends events.

        Example:
            await client.images.build("python:3.12-slim", shapes=[{"vcpus": 2, "mem_mib": 2048}])
        """
        # Preparing a prepared image again does nothing.
        call = json_call(
            "POST",
            "/v1/images/build",
            {"image": image, "shapes": shapes},
            idempotent=True,
            timeout_s=self._transport.slow_timeout_s,
        )
        if on_progress is None:
            return await self._transport.call_json(call, parse_record(ImageInfo))
        return await self._follow(call, on_progress)

    async def delete(self, image: str) -> None:
        """Deletes an image that was built from steps, such as `built/app:1`. Its sandboxes keep what they need of it.

        Example:
            await client.images.delete("built/app:1")
        """
        query = build_query({"image": image})
        await self._transport.call_empty(Call(method="DELETE", path="/v1/images", query=query, idempotent=True))

    async def _follow(self, call: Call, on_progress: Callable[[BuildProgress], object]) -> ImageInfo:
        headers = {**call.headers, "accept": "text/event-stream"}
        stall_s = max(self._transport.timeout_s, BUILD_SILENCE_S)
        async with await self._transport.call_stream(replace(call, headers=headers, stall_s=stall_s)) as stream:
            async for data in stream.events(MAX_BUILD_EVENT):
                image = take_build_event(data, call.label, on_progress)
                if image is not None:
                    return image
        raise broken_build(call.label, "the stream ended before the image was ready")
