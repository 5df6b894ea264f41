"""Commands that outlive their client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from coppice._async.command_reader import AsyncCommandReader
from coppice._async.paged_list import AsyncPagedList
from coppice._async.runtime import sleep
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, create_call, json_call
from coppice._core.frames import StreamName
from coppice._core.paths import build_query, encode_segment, require_limit, to_page_items
from coppice._core.records import parse_list, parse_record
from coppice._core.retry import Persistence
from coppice.errors import CoppiceError
from coppice.models import CommandInfo

CommandState = Literal["running", "exited", "lost"]

# Seconds for which the service waits in one request.
_WAIT_S = 30
_parse_command = parse_record(CommandInfo)


class AsyncCommand:
    """A command that outlives its client.

    It continues when the connection is lost, when the service restarts, and while the sandbox hibernates. The object
    holds the record that the service sent last. Calls raise `CoppiceError`.

    Example:
        command = await sandbox.commands.start("npm run build", tag="build")
        async for piece in command.output():
            if piece.type != "dropped":
                print(piece.data, end="")
        print((await command.wait()).exit_code)
    """

    def __init__(self, transport: AsyncTransport, commands_path: str, record: CommandInfo) -> None:
        self._transport = transport
        self._path = f"{commands_path}/{encode_segment(record.id, 'the command id')}"
        self._record = record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """Id of the command, for example `cmd0123456789abcdef0123`."""
        return self._record.id

    @property
    def state(self) -> str:
        """State of the command in the record that the service sent last."""
        return self._record.state

    @property
    def record(self) -> CommandInfo:
        """The record that the service sent last."""
        return self._record

    def output(self, *, offset: int = 0, stream: StreamName | None = None) -> AsyncCommandReader:
        """Returns the output from `offset` on, in bytes of both streams together, for a loop over it.

        Example:
            async for piece in command.output(stream="stderr"):
                print(piece)
        """
        return AsyncCommandReader(self._transport, self._path, offset, stream)

    async def wait(self) -> CommandInfo:
        """Waits until the command has ended, and returns its record. It continues to wait after a lost connection.

        Example:
            exit_code = (await command.wait()).exit_code
        """
        persistence = Persistence()
        call = Call(
            method="GET",
            path=f"{self._path}/wait",
            query=build_query({"timeout": _WAIT_S}),
            idempotent=True,
            timeout_s=self._transport.timeout_s + _WAIT_S,
        )
        while True:
            try:
                await self._fetch(call)
                persistence.note_progress()
            except CoppiceError as error:
                await sleep(persistence.next_delay_s(error))
                continue
            if self._record.state != "running":
                return self._record

    async def signal(self, name: str) -> None:
        """Sends a signal, for example `TERM` or `INT`, to the command and all processes that it has started.

        Raises `CoppiceError` with code `invalid_state` when it has ended.

        Example:
            await command.signal("TERM")
        """
        await self._fetch(json_call("POST", f"{self._path}/signal", {"signal": name}, idempotent=False))

    async def write(self, data: str | bytes, *, end: bool = False) -> None:
        """Writes to standard input of a command that was started with `stdin=True`.

        Returns when the command has read it, up to what a pipe holds. `end` ends the input: the command then reads an
        end of file.

        Example:
            await command.write("yes\\n", end=True)
        """
        call = Call(
            method="POST",
            path=f"{self._path}/stdin",
            query=build_query({"end": "true" if end else "false"}),
            headers={"content-type": "application/octet-stream"},
            content=data.encode() if isinstance(data, str) else data,
            idempotent=False,
        )
        await self._fetch(call)

    async def info(self) -> CommandInfo:
        """Fetches the current record, and stores it in `record`.

        Example:
            info = await command.info()
            print(info.state, info.output_bytes)
        """
        return await self._fetch(Call(method="GET", path=self._path, idempotent=True))

    async def _fetch(self, call: Call) -> CommandInfo:
        self._record = await self._transport.call_json(call, _parse_command)
        return self._record


class AsyncSandboxCommands:
    """The commands of a sandbox that outlive their client. Available as `sandbox.commands`."""

    def __init__(self, transport: AsyncTransport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/commands"

    async def start(
        self,
        command: str,
        *,
        timeout: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | Literal[True] | None = None,
        tag: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncCommand:
        """Starts a command with `/bin/sh -c`, and returns when it runs.

        `timeout` is in seconds; by default there is none. `stdin` is text that the command reads; True keeps it open
        for `write()`. `tag` is a text to find the command again.

        Example:
            server = await sandbox.commands.start("npm run dev", tag="server")
        """
        body = {
            "command": command,
            "timeout": timeout,
            "cwd": cwd,
            "env": env,
            "user": user,
            "stdin": stdin,
            "tag": tag,
        }
        call = create_call(self._path, body, key=idempotency_key, timeout_s=self._transport.slow_timeout_s)
        return self._build(await self._transport.call_json(call, _parse_command))

    async def get(self, command_id: str) -> AsyncCommand | None:
        """Finds a command by its id. Returns None when there is none.

        Example:
            command = await sandbox.commands.get("cmd0123456789abcdef0123")
        """
        path = f"{self._path}/{encode_segment(command_id, 'the command id')}"
        call = Call(method="GET", path=path, idempotent=True)
        return await self._transport.find_json(call, self._parse)

    def list(
        self, *, state: CommandState | None = None, tag: str | None = None, limit: int | None = None
    ) -> AsyncPagedList[AsyncCommand]:
        """Lists commands, newest first. `limit` is the maximum number over all pages.

        Example:
            async for command in sandbox.commands.list(state="running"):
                print(command.id)
        """
        require_limit(limit)
        query = build_query({"state": state, "tag": tag, "limit": to_page_items(limit)})
        return AsyncPagedList(
            self._transport, path=self._path, query=query, parse_page=parse_list(self._parse), limit=limit
        )

    def _parse(self, value: Any) -> AsyncCommand:
        return self._build(_parse_command(value))

    def _build(self, record: CommandInfo) -> AsyncCommand:
        return AsyncCommand(self._transport, self._path, record)
