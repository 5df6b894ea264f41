"""The files of a sandbox, apart from the transfer of single files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from coppice._async.byte_stream import AsyncByteStream
from coppice._async.file_watch import AsyncFileWatch
from coppice._async.runtime import Content
from coppice._async.transport import AsyncTransport
from coppice._async.upload import send_content
from coppice._core.call import Call, json_call
from coppice._core.file_events import WATCH_STALL_S
from coppice._core.paths import build_query, format_flag, format_mode
from coppice._core.records import parse_record
from coppice.models import FileInfo, FileLink, UnpackResult

ArchiveFormat = Literal["tar", "tar.gz"]


class AsyncSandboxFiles:
    """The files of a sandbox, apart from uploads, downloads and lists. Available as `sandbox.files`.

    A relative path starts at the sandbox's working directory. All calls run as root in the sandbox. They raise
    `CoppiceError` with code `file_not_found` for a missing file, and with `file_error` for what the sandbox's kernel
    refuses; the message ends with the errno.
    """

    def __init__(self, transport: AsyncTransport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/files"

    async def stat(self, path: str) -> FileInfo:
        """Describes a file or directory. A symbolic link is described itself; with a slash at the end, its target.

        Example:
            info = await sandbox.files.stat("/workspace/out.csv")
            print(info.type, info.size, info.user)
        """
        call = Call(method="GET", path=f"{self._path}/stat", query=build_query({"path": path}), idempotent=True)
        return await self._transport.call_json(call, parse_record(FileInfo))

    async def mkdir(
        self, path: str, *, mode: int | str | None = None, parents: bool | None = None, user: str | None = None
    ) -> FileInfo:
        """Creates a directory and its missing parents.

        `mode` are the permissions, as a number or octal text. An existing directory is accepted and stays as it is,
        unless `parents` is False. `user` owns all created directories. Raises `CoppiceError` with code
        `already_exists` if the name is taken.

        Example:
            await sandbox.files.mkdir("/workspace/cache", mode=0o750)
        """
        body = {"path": path, "mode": format_mode(mode), "parents": parents, "user": user}
        return await self._change("mkdir", body, idempotent=parents is not False)

    async def move(self, from_: str, to: str, *, overwrite: bool | None = None) -> FileInfo:
        """Moves or renames a file or directory in one step. `to` is the new path itself.

        `overwrite` replaces a file, or an empty directory by a directory; otherwise a taken path is an error of code
        `already_exists`. Nothing is copied: to another file system, use a command.

        Example:
            await sandbox.files.move("/workspace/report.tmp", "/workspace/report.csv", overwrite=True)
        """
        return await self._change("move", {"from": from_, "to": to, "overwrite": overwrite}, idempotent=False)

    async def remove(self, path: str, *, recursive: bool | None = None) -> None:
        """Removes a file, an empty directory, or, with `recursive`, a directory with everything in it.

        A symbolic link is removed itself.

        Example:
            await sandbox.files.remove("/workspace/build", recursive=True)
        """
        query = build_query({"path": path, "recursive": format_flag(recursive)})
        await self._transport.call_empty(Call(method="DELETE", path=self._path, query=query, idempotent=False))

    async def chmod(self, path: str, mode: int | str, *, recursive: bool | None = None) -> FileInfo:
        """Changes permissions. `mode` is a number or octal text.

        Example:
            await sandbox.files.chmod("/workspace/run.sh", 0o755)
        """
        body = {"path": path, "mode": format_mode(mode), "recursive": recursive}
        return await self._change("chmod", body, idempotent=True)

    async def chown(self, path: str, user: str, *, recursive: bool | None = None) -> FileInfo:
        """Changes the owner: name, uid, `name:group` or `uid:gid`.

        Example:
            await sandbox.files.chown("/workspace", "node", recursive=True)
        """
        return await self._change("chown", {"path": path, "user": user, "recursive": recursive}, idempotent=True)

    async def download_archive(self, path: str, *, format: ArchiveFormat | None = None) -> AsyncByteStream:
        """Reads a directory with everything in it as a tar. Names are relative to the directory.

        The stream raises `CoppiceError` if a file cannot be read, or the connection breaks.

        Example:
            async with await sandbox.files.download_archive("/workspace/dist", format="tar.gz") as stream:
                async for chunk in stream:
                    file.write(chunk)
        """
        query = build_query({"path": path, "format": format})
        call = Call(method="GET", path=f"{self._path}/archive", query=query, idempotent=True)
        return await self._transport.call_stream(call)

    async def upload_archive(
        self, path: str, content: Content, *, format: ArchiveFormat | None = None, user: str | None = None
    ) -> UnpackResult:
        """Unpacks a tar into a directory, which is created if it is missing. Files of the same name are replaced.

        `content` is as for `upload`: bytes are retried, a file or an iterable is sent as it is read and never retried.
        `user` owns all that is written. Raises `CoppiceError` with code `invalid_request` for an archive that is not
        whole or that leads out of the directory; the message says how many entries were written before.

        Example:
            with open("site.tar.gz", "rb") as file:
                await sandbox.files.upload_archive("/workspace", file, format="tar.gz")
        """
        query = build_query({"path": path, "format": format, "user": user})
        call = Call(method="PUT", path=f"{self._path}/archive", query=query, idempotent=True)
        return await send_content(self._transport, call, content, parse_record(UnpackResult))

    async def create_link(
        self, path: str, *, method: Literal["download", "upload"] = "download", expires_in: int | None = None
    ) -> FileLink:
        """Creates a URL that reads or writes one file without the API key.

        `download` allows GET and HEAD of the URL, `upload` PUT and POST. `expires_in` is in seconds, 3600 by default.
        The URL ends when it expires, when the API key is revoked, and with the sandbox.

        Example:
            link = await sandbox.files.create_link("/workspace/out.csv", expires_in=600)
        """
        # The service stores nothing, so a link that is lost with its answer does no harm.
        body = {"path": path, "method": method, "expires_in": expires_in}
        call = json_call("POST", f"{self._path}/links", body, idempotent=True)
        return await self._transport.call_json(call, parse_record(FileLink))

    async def watch(self, path: str, *, recursive: bool | None = None) -> AsyncFileWatch:
        """Watches a directory, with `recursive` also all directories below. Returns when the watch has begun.

        A loop over the result yields the changes from then on. It ends when the directory is gone, and raises
        `CoppiceError` with code `invalid_state` when the sandbox ends or hibernates.

        Example:
            async with await sandbox.files.watch("/workspace", recursive=True) as changes:
                async for change in changes:
                    print(change.type, change.path)
        """
        call = Call(
            method="GET",
            path=f"{self._path}/watch",
            query=build_query({"path": path, "recursive": format_flag(recursive)}),
            headers={"accept": "text/event-stream"},
            idempotent=True,
            stall_s=WATCH_STALL_S,
        )
        return AsyncFileWatch(await self._transport.call_stream(call), call.label)

    async def _change(self, route: str, body: Mapping[str, object], *, idempotent: bool) -> FileInfo:
        call = json_call("POST", f"{self._path}/{route}", body, idempotent=idempotent)
        return await self._transport.call_json(call, parse_record(FileInfo))
