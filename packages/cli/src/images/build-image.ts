/** `coppice images build`: uploads the context, builds, and shows the log. */
import { Readable } from 'node:stream';
import type { Coppice, ImageBuildEvent, ImageBuildInfo } from '../../../sdk/src/index.ts';
import type { Output } from '../output/output.ts';
import { toVisible } from '../output/visible-text.ts';
import { readBuildFiles } from './build-files.ts';
import { packContext } from './pack-context.ts';

export interface BuildCall {
  client: Coppice;
  out: Output;
  directory: string;
  /** Path of the Dockerfile; by default that of the directory. */
  file: string | undefined;
  name: string;
  buildArgs: Readonly<Record<string, string>>;
  shape: { vcpus?: number | undefined; memMiB?: number | undefined; diskMiB?: number | undefined };
  networkProfile: string | undefined;
  noCache: boolean;
  timeout: number | undefined;
}

/** Resolves with the finished build. Rejects with the reason if it fails. */
export async function buildFromDirectory(call: BuildCall): Promise<ImageBuildInfo> {
  const { client, out, directory, name, buildArgs, shape, networkProfile, noCache, timeout } = call;
  const { dockerfile, rules } = await readBuildFiles(directory, call.file);
  const archive = Readable.toWeb(Readable.from(packContext(directory, rules))) as ReadableStream<Uint8Array>;
  const context = await out.during('uploading the context …', client.builds.uploadContext(archive));
  const request = { dockerfile, name, buildArgs, context, ...shape, networkProfile, noCache, timeout };
  return client.builds.run(request, { onEvent: (event) => show(out, event) });
}

/** The log is for people and goes to standard error, so that the result alone is on standard output. */
function show(out: Output, event: ImageBuildEvent): void {
  if (event.type === 'stdout' || event.type === 'stderr')
    process.stderr.write(event.data.split('\n').map(toVisible).join('\n'));
  else if (event.type === 'step')
    out.note(`[${event.step + 1}] ${event.cached ? 'cached: ' : ''}${event.text}`);
  else if (event.type === 'note') out.note(`--> ${event.text}`);
}
