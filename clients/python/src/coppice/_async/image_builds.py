"""Builds of images from steps or Dockerfiles."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from coppice._async.runtime import Content, sleep
from coppice._async.transport import AsyncTransport
from coppice._async.upload import send_content
from coppice._core.call import Call, create_call
from coppice._core.image_builds import (
    BUILD_LOG_SILENCE_S,
    BUILDS_PATH,
    CONTEXTS_PATH,
    MAX_BUILD_EVENT_LENGTH,
    BuildEvent,
    BuildStep,
    build_path,
    context_path,
    parse_build,
    parse_build_event,
    require_done,
    to_build_body,
)
from coppice._core.paths import build_query
from coppice._core.records import parse_list
from coppice._core.retry import Persistence
from coppice.errors import CoppiceError
from coppice.models import ImageBuildInfo


class AsyncImageBuilds:
    """Builds images from steps or Dockerfiles, in a sandbox. Available as `client.builds`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def run(
        self,
        name: str,
        *,
        from_: str | None = None,
        steps: Sequence[BuildStep] | None = None,
        dockerfile: str | None = None,
        build_args: Mapping[str, str] | None = None,
        context: str | None = None,
        no_cache: bool | None = None,
        timeout: int | None = None,
        network_profile: str | None = None,
        vcpus: int | None = None,
        mem_mib: int | None = None,
        disk_mib: int | None = None,
        idempotency_key: str | None = None,
        on_event: Callable[[BuildEvent], object] | None = None,
    ) -> ImageBuildInfo:
        """Builds an image and returns when it is there. Takes what `start` takes, and calls `on_event` with the log.

        Raises `CoppiceError` with the code `build_failed` if a step fails.

        Example:
            await client.builds.run("app:1", from_="node:22-slim", steps=[{"run": "npm install -g pnpm"}])
        """
        build = await self.start(
            name,
            from_=from_,
            steps=steps,
            dockerfile=dockerfile,
            build_args=build_args,
            context=context,
            no_cache=no_cache,
            timeout=timeout,
            network_profile=network_profile,
            vcpus=vcpus,
            mem_mib=mem_mib,
            disk_mib=disk_mib,
            idempotency_key=idempotency_key,
        )
        async for event in self.follow(build.id):
            if on_event is not None:
                on_event(event)
        return require_done(await self.get(build.id))

    async def start(
        self,
        name: str,
        *,
        from_: str | None = None,
        steps: Sequence[BuildStep] | None = None,
        dockerfile: str | None = None,
        build_args: Mapping[str, str] | None = None,
        context: str | None = None,
        no_cache: bool | None = None,
        timeout: int | None = None,
        network_profile: str | None = None,
        vcpus: int | None = None,
        mem_mib: int | None = None,
        disk_mib: int | None = None,
        idempotency_key: str | None = None,
    ) -> ImageBuildInfo:
        """Starts a build, which continues without its client.

        - `name`: of the new image, `app:1`; sandboxes are created from `built/app:1`. A later build with the name
          replaces it.
        - `from_` and `steps`: a pinned image, and the steps; or `dockerfile` with `build_args`
        - `context`: id of `upload_context()`, with the files that the steps copy
        - `no_cache`: if true, all steps run; by default, a build begins with what the same first steps left before
        - `timeout` (1800): seconds after which the build fails
        - `network_profile`, `vcpus`, `mem_mib`, `disk_mib`: of the sandbox of the build

        Example:
            build = await client.builds.start("app:1", dockerfile=Path("Dockerfile").read_text())
        """
        body = {
            "name": name,
            "from": from_,
            "steps": steps,
            "dockerfile": dockerfile,
            "build_args": build_args,
            "context": context,
            "no_cache": no_cache,
            "timeout": timeout,
            "network_profile": network_profile,
            "vcpus": vcpus,
            "mem_mib": mem_mib,
            "disk_mib": disk_mib,
        }
        timeout_s = self._transport.timeout_s
        call = create_call("/v1/images/build", to_build_body(body), key=idempotency_key, timeout_s=timeout_s)
        return await self._transport.call_json(call, parse_build)

    async def upload_context(self, content: Content) -> str:
        """Uploads a tar with the files that a build copies. Returns its id, for one build within an hour.

        Example:
            context = await client.builds.upload_context(Path("context.tar").read_bytes())
        """
        call = Call(method="POST", path=CONTEXTS_PATH, idempotent=False)
        return await send_content(self._transport, call, content, lambda answer: str(answer["id"]))

    async def delete_context(self, id: str) -> None:
        """Removes a context that no build uses. It makes room for another: the service keeps only some.

        Example:
            await client.builds.delete_context(context)
        """
        await self._transport.call_empty(Call(method="DELETE", path=context_path(id), idempotent=True))

    async def get(self, id: str) -> ImageBuildInfo:
        """Gets a build.

        Example:
            build = await client.builds.get(build.id)
        """
        return await self._transport.call_json(Call(method="GET", path=build_path(id), idempotent=True), parse_build)

    async def list(self) -> builtins.list[ImageBuildInfo]:
        """Lists the newest 100 builds.

        Example:
            for build in await client.builds.list():
                print(build.name, build.status)
        """
        call = Call(method="GET", path=BUILDS_PATH, idempotent=True)
        return await self._transport.call_json(call, parse_list(parse_build))

    async def cancel(self, id: str) -> ImageBuildInfo:
        """Cancels a build that runs. Returns when its sandbox is destroyed.

        Example:
            await client.builds.cancel(build.id)
        """
        call = Call(method="DELETE", path=build_path(id), idempotent=True, timeout_s=self._transport.slow_timeout_s)
        return await self._transport.call_json(call, parse_build)

    async def follow(self, id: str, *, after: int = 0) -> AsyncIterator[BuildEvent]:
        """Yields the log of a build to its end, and continues after lost connections, without loss or repetition.

        `after` is the `seq` of the last event that you have.

        Example:
            async for event in client.builds.follow(build.id):
                print(event.text or event.data or "")
        """
        persistence = Persistence()
        ended: ImageBuildInfo | None = None
        while True:
            call = _log_call(id, after, stall_s=max(BUILD_LOG_SILENCE_S, self._transport.timeout_s))
            try:
                async with await self._transport.call_stream(call) as stream:
                    persistence.begin_stream()
                    try:
                        async for text in stream.events(MAX_BUILD_EVENT_LENGTH):
                            event = parse_build_event(text, call.label)
                            persistence.note_progress()
                            after = event.seq
                            yield event
                            if event.type == "end":
                                return
                    finally:
                        persistence.end_stream()
                if ended is not None:
                    yield BuildEvent(type="end", seq=after + 1, build=ended)
                    return
                build = await self.get(id)
                if build.ended_at is not None:
                    # Events may have come between the end of the log and that of the build.
                    ended = build
                    continue
                raise CoppiceError(f"{call.label}: the log ended before the build", status=0, code="connection_failed")
            except CoppiceError as error:
                delay_s = persistence.next_delay_s(error)
            await sleep(delay_s)


def _log_call(id: str, after: int, *, stall_s: float) -> Call:
    return Call(
        method="GET",
        path=f"{build_path(id)}/log",
        query=build_query({"after": after}),
        headers={"accept": "text/event-stream"},
        idempotent=True,
        stall_s=stall_s,
    )
