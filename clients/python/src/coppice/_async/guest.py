"""The part of a sandbox inside the guest: commands, files and ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coppice._async.byte_stream import AsyncByteStream
from coppice._async.command_stream import AsyncCommandByteStream, AsyncCommandStream, exec_with_listeners
from coppice._async.commands import AsyncSandboxCommands
from coppice._async.files import AsyncSandboxFiles
from coppice._async.interactive.shell import AsyncShell
from coppice._async.interactive.spawned_command import AsyncSpawnedCommand
from coppice._async.interactive.terminal import AsyncTerminal
from coppice._async.paged_list import AsyncPagedList
from coppice._async.runtime import Content, Listener
from coppice._async.transport import AsyncTransport
from coppice._async.upload import send_content
from coppice._core.answers import MAX_BUFFERED_BYTES, too_large
from coppice._core.byte_range import ByteRange
from coppice._core.call import Call, encode_json, json_call
from coppice._core.frames import CommandExit, OutputChunk
from coppice._core.paths import (
    MAX_PAGE_FILES,
    build_query,
    encode_segment,
    format_mode,
    require_limit,
    require_port,
    to_page_items,
)
from coppice._core.records import parse_list, parse_record
from coppice._streams.messages import TerminalExit, parse_spawn_message, parse_terminal_message, require_side
from coppice._streams.shell_runs import ShellFrame, parse_shell_frame
from coppice._streams.stream_connection import StreamRequest
from coppice.models import ExecResult, FileEntry, Preview, PreviewInfo, Ticket, UploadResult

DEFAULT_EXEC_TIMEOUT_S = 30


class AsyncSandboxGuest:
    """The part of a sandbox that acts inside the guest.

    Calls raise `CoppiceError`, for example with code `invalid_state` when the sandbox is not running, or
    `guest_unreachable` when its agent does not answer.
    """

    commands: AsyncSandboxCommands
    """Its commands that outlive their client."""

    files: AsyncSandboxFiles
    """Its files, apart from uploads, downloads and lists, which are methods of the sandbox."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self.files = AsyncSandboxFiles(transport, path)
        self.commands = AsyncSandboxCommands(transport, path)
        self._transport = transport
        self._path = path

    async def exec(
        self,
        command: str,
        *,
        timeout: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | None = None,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> ExecResult:
        """Runs a command with `/bin/sh -c` and waits for its end. The call is never retried.

        `timeout` is in seconds, 30 by default; the command is then killed, and its exit code is 124. An exit code other
        than zero is a result, not an error. With `on_stdout` or `on_stderr`, each is called with output as it arrives;
        if one raises, the command is killed. Without these, an interrupted call leaves the command running.

        Example:
            result = await sandbox.exec("npm test", cwd="/workspace", timeout=120)
            print(result.exit_code, result.stdout)
        """
        call = self._exec_call("exec", command, timeout, cwd=cwd, env=env, user=user, stdin=stdin)
        if on_stdout is None and on_stderr is None:
            return await self._transport.call_json(call, parse_record(ExecResult))
        output = self.stream(command, timeout=timeout, cwd=cwd, env=env, user=user, stdin=stdin)
        return await exec_with_listeners(output, on_stdout, on_stderr)

    def stream(
        self,
        command: str,
        *,
        timeout: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | None = None,
    ) -> AsyncCommandStream:
        """Returns the output of a command for a loop over it. The command starts with the loop.

        A slow reader makes the command wait. `exit` of the result says how it ended. Closing the result, which the end
        of its block does, kills the command.

        Example:
            async with sandbox.stream("npm run build", timeout=600) as output:
                async for chunk in output:
                    print(chunk.type, chunk.data)
        """
        call = self._exec_call("exec/stream", command, timeout, cwd=cwd, env=env, user=user, stdin=stdin)
        return AsyncCommandStream(self._transport, call)

    def stream_bytes(
        self,
        command: str,
        *,
        timeout: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | None = None,
    ) -> AsyncCommandByteStream:
        """Does the same as `stream()`, and yields the output as the bytes that the command wrote.

        It is for output that is not UTF-8.

        Example:
            async with sandbox.stream_bytes("tar -cz /workspace") as output:
                async for chunk in output:
                    if chunk.type == "stdout":
                        file.write(chunk.data)
        """
        call = self._exec_call("exec/stream", command, timeout, cwd=cwd, env=env, user=user, stdin=stdin)
        return AsyncCommandByteStream(self._transport, replace(call, query=build_query({"encoding": "base64"})))

    async def spawn(
        self,
        command: str,
        *,
        timeout: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> AsyncSpawnedCommand:
        """Starts a command with open standard input, for a dialogue with it. The end of its block kills it.

        `timeout` is in seconds, 30 by default; the command is then killed, and its exit code is 124.

        Example:
            async with await sandbox.spawn("cat") as command:
                await command.stdin.write("text")
                await command.stdin.end()
                print(await command.wait())
        """
        body = _exec_body(command, timeout, cwd=cwd, env=env, user=user)
        request: StreamRequest[OutputChunk, CommandExit] = StreamRequest(
            path=f"{self._path}/exec/ws",
            parse=parse_spawn_message,
            first=encode_json(body).decode(),
            stall_s=self._exec_timeout_s(body),
        )
        return AsyncSpawnedCommand(await self._transport.streams.open(request))

    async def shell(self, *, cwd: str | None = None, user: str | None = None) -> AsyncShell:
        """Opens a bash that keeps its state from one command to the next. The end of its block ends it.

        Example:
            async with await sandbox.shell() as shell:
                await shell.run("cd /tmp; NAME=value")
                print((await shell.run("echo $NAME in $PWD")).stdout)
        """
        query = build_query({"cwd": cwd, "user": user})
        request: StreamRequest[ShellFrame, bool] = StreamRequest(
            path=f"{self._path}/shell", query=query, parse=parse_shell_frame
        )
        return AsyncShell(await self._transport.streams.open_shell(request))

    async def terminal(
        self,
        *,
        cols: int | None = None,
        rows: int | None = None,
        command: str | None = None,
        cwd: str | None = None,
        user: str | None = None,
    ) -> AsyncTerminal:
        """Opens a terminal (PTY), 80 by 24 by default, with a login shell or `command`. The end of its block ends it.

        Raises `ValueError` unless `cols` and `rows` are from 1 to 1000.

        Example:
            async with await sandbox.terminal(command="top -b -n 1") as terminal:
                async for data in terminal:
                    sys.stdout.buffer.write(data)
        """
        for name, value in (("cols", cols), ("rows", rows)):
            if value is not None:
                require_side(name, value)
        query = build_query({"cols": cols, "rows": rows, "command": command, "cwd": cwd, "user": user})
        request: StreamRequest[bytes, TerminalExit] = StreamRequest(
            path=f"{self._path}/terminal", query=query, parse=parse_terminal_message
        )
        return AsyncTerminal(await self._transport.streams.open(request))

    async def upload(
        self,
        path: str,
        content: Content,
        *,
        mode: int | str | None = None,
        user: str | None = None,
    ) -> UploadResult:
        """Writes a file: it appears complete or not at all. Missing parent directories are created.

        `content` is text, bytes, a file that is open in binary mode, or an iterable of bytes. The latter two are sent
        as they are read and never retried. `mode` are the permissions, as a number or octal text. `user` owns the file
        and created directories.

        Example:
            await sandbox.upload("/workspace/run.sh", "#!/bin/sh\\necho hi\\n", mode=0o755)
        """
        query = build_query({"path": path, "mode": format_mode(mode), "user": user})
        call = Call(method="POST", path=f"{self._path}/files/upload", query=query, idempotent=True)
        return await send_content(self._transport, call, content, parse_record(UploadResult))

    async def download(self, path: str, *, max_bytes: int = MAX_BUFFERED_BYTES) -> str:
        """Reads a file as UTF-8 text. Bytes that are not UTF-8 become U+FFFD.

        Raises `CoppiceError` with code `file_not_found`, or `response_too_large` for a file over `max_bytes`.

        Example:
            text = await sandbox.download("/etc/os-release")
        """
        return (await self.download_bytes(path, max_bytes=max_bytes)).decode("utf-8", "replace")

    async def download_bytes(self, path: str, *, max_bytes: int = MAX_BUFFERED_BYTES) -> bytes:
        """Reads a file as bytes. Raises the errors of `download`.

        Example:
            png = await sandbox.download_bytes("/workspace/plot.png")
        """
        body = bytearray()
        async with await self.download_stream(path) as stream:
            async for chunk in stream:
                body += chunk
                if len(body) > max_bytes:
                    raise too_large(max_bytes)
        return bytes(body)

    async def download_stream(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncByteStream:
        """Reads a file of any size, or a part of it, as a stream of bytes.

        The part begins at byte `offset`, from 0 on, and has at most `length` bytes. Raises `CoppiceError` with code
        `range_not_satisfiable` if it begins at or after the end of the file.

        Example:
            async with await sandbox.download_stream("/workspace/big.tar", offset=1_000_000) as stream:
                async for chunk in stream:
                    file.write(chunk)
        """
        wanted = ByteRange(offset, length)
        query = build_query({"path": path})
        call = Call(method="GET", path=f"{self._path}/files/download", query=query, idempotent=True)
        return await self._transport.call_range(call, wanted)

    def list_files(self, path: str, *, limit: int | None = None) -> AsyncPagedList[FileEntry]:
        """Lists a directory, sorted by name. `limit` is the maximum number of entries over all pages.

        Example:
            async for entry in sandbox.list_files("/workspace"):
                print(entry.type, entry.path)
        """
        require_limit(limit)
        query = build_query({"path": path, "limit": to_page_items(limit, MAX_PAGE_FILES)})
        return AsyncPagedList(
            self._transport,
            path=f"{self._path}/files",
            query=query,
            parse_page=parse_list(parse_record(FileEntry)),
            limit=limit,
        )

    def url(self, port: int, path: str = "") -> str:
        """Returns the URL of a port of the sandbox. It makes no request. `path` may include a query.

        Requests to the URL need the API key as bearer token; for a browser use `preview()`.

        Example:
            httpx.get(sandbox.url(3000, "/health?full=1"), headers={"authorization": f"Bearer {api_key}"})
        """
        return f"{self._transport.base_url}{self._path}/proxy/{require_port(port)}/{path.removeprefix('/')}"

    async def preview(self, port: int, *, expires_in: int | None = None) -> Preview:
        """Creates a link that opens a port in a browser without the API key, until it expires or is revoked.

        `expires_in` is in seconds, 3600 by default.

        Example:
            print((await sandbox.preview(3000, expires_in=600)).url)
        """
        path = f"{self._path}/ports/{require_port(port)}/preview"
        # If the answer is lost, its link was never seen, so a retry may create another preview.
        call = json_call("POST", path, {"expires_in": expires_in}, idempotent=True)
        return await self._transport.call_json(call, parse_record(Preview))

    async def previews(self) -> list[PreviewInfo]:
        """Lists the previews of the sandbox. The list does not include their links.

        Example:
            for preview in await sandbox.previews():
                print(preview.id, preview.port, preview.expires_at)
        """
        call = Call(method="GET", path=f"{self._path}/previews", idempotent=True)
        return await self._transport.call_json(call, parse_list(parse_record(PreviewInfo)))

    async def revoke_preview(self, preview_id: str) -> None:
        """Revokes a preview: the service refuses the next request with its link.

        Example:
            await sandbox.revoke_preview(preview.id)
        """
        path = f"{self._path}/previews/{encode_segment(preview_id, 'the preview id')}"
        await self._transport.call_empty(Call(method="DELETE", path=path, idempotent=True))

    async def create_ticket(self, *, expires_in: int | None = None) -> Ticket:
        """Creates a ticket that opens one WebSocket of this sandbox, once, for a client without the API key.

        `expires_in` is in seconds, 60 by default.

        Example:
            ticket = (await sandbox.create_ticket(expires_in=30)).ticket
        """
        call = json_call("POST", f"{self._path}/tickets", {"expires_in": expires_in}, idempotent=True)
        return await self._transport.call_json(call, parse_record(Ticket))

    def _exec_call(
        self, endpoint: str, command: str, timeout: int | None, **options: str | Mapping[str, str] | None
    ) -> Call:
        body = _exec_body(command, timeout, **options)
        # A stream is limited by the time between two pieces instead, so its timeout is that of the client.
        total_s = self._exec_timeout_s(body) if endpoint == "exec" else None
        return json_call("POST", f"{self._path}/{endpoint}", body, idempotent=False, timeout_s=total_s)

    def _exec_timeout_s(self, body: Mapping[str, Any]) -> float:
        timeout_s: float = max(0, body["timeout"])
        return self._transport.timeout_s + timeout_s


def _exec_body(command: str, timeout: int | None, **options: str | Mapping[str, str] | None) -> dict[str, Any]:
    return {"command": command, "timeout": DEFAULT_EXEC_TIMEOUT_S if timeout is None else timeout, **options}
