import type { Command } from 'commander';
import { abortOnSignal, withSignals } from '../attach/signals.ts';
import { CopyProgress } from '../copy/copy-progress.ts';
import { download, downloadToStdout } from '../copy/download.ts';
import { parsePlace } from '../copy/place.ts';
import { upload, uploadStream } from '../copy/upload.ts';
import { UsageError } from '../output/failure.ts';
import { action, addCommand, type Call } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

export function addCopy(program: Command): void {
  addCommand(program, {
    syntax: 'cp <source> <destination>',
    summary: 'copies files and directories into a sandbox or out of it',
    details:
      'A place in a sandbox is <sandbox>:<path>; a path without a slash at its beginning starts at the working directory of the ' +
      'sandbox. "-" is standard input or output. A destination that is a directory, or ends with a slash, gets a copy of ' +
      'the same name; a source that ends with /. means the content of the directory. Permissions are kept as far as your ' +
      'umask allows. Directories are copied with everything in them. Links that lead out of a copied directory of a sandbox are left out.',
    examples: [
      'coppice cp . run0123:/workspace/app',
      'coppice cp run0123:report.pdf .',
      'tar cz data | coppice cp - run0123:/tmp/data.tar.gz',
    ],
  }).action(action(copy));
}

/** Copies. A signal ends the copy, and a file that is half written is removed; a second Ctrl-C does not wait for that. */
async function copy(call: Call<object>): Promise<void> {
  const controller = new AbortController();
  try {
    await withSignals(abortOnSignal(controller), () => copyBetween(call, new CopyProgress(controller)));
  } catch (error) {
    throw controller.signal.aborted ? controller.signal.reason : error;
  }
}

async function copyBetween(call: Call<object>, progress: CopyProgress): Promise<void> {
  const [source, destination] = [parsePlace(call.operands[0] ?? ''), parsePlace(call.operands[1] ?? '')];
  const find = async (id: string) => findSandbox(call.connect(), id, progress);
  if (source.kind !== 'sandbox' && destination.kind === 'sandbox') {
    const sandbox = await find(destination.sandbox);
    const to = destination.path;
    const work =
      source.kind === 'stream'
        ? uploadStream(sandbox, { to, progress })
        : upload(sandbox, { from: source.path, to, progress });
    const path = await work.finally(() => progress.end());
    return report(call, progress, { path: `${sandbox.id}:${path}`, skipped: [] });
  }
  if (source.kind === 'sandbox' && destination.kind !== 'sandbox') {
    const sandbox = await find(source.sandbox);
    if (destination.kind === 'stream')
      return downloadToStdout(sandbox, source.path, progress).finally(() => progress.end());
    const work = download(sandbox, { from: source.path, to: destination.path, progress });
    return report(call, progress, await work.finally(() => progress.end()));
  }
  throw new UsageError('exactly one of the two places must be in a sandbox, as <sandbox>:<path>');
}

async function report(
  { out }: Call<object>,
  { files, bytes, summary }: CopyProgress,
  { path, skipped }: { path: string; skipped: readonly string[] },
): Promise<void> {
  for (const text of skipped) out.note(`coppice: left out ${text}`);
  if (out.isJson) await out.json({ path, files, bytes, skipped });
  else if (process.stderr.isTTY) out.note(`${path}: ${summary}`);
}
