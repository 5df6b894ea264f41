/** The unpacking process: the only one that parses layers, without privileges, in a directory of its own. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { finished } from 'node:stream/promises';
import { json } from 'node:stream/consumers';
import { isDiskFull } from '../../host/full-disk.ts';
import { ProcessError } from '../../host/run-process.ts';
import { readLayers, writeFlatTar } from '../layers/flatten.ts';
import { unpackLayer } from '../layers/layer-unpacking.ts';
import { buildSquashfs } from '../layers/squashfs.ts';
import { LayerError } from '../tar/layer-error.ts';
import {
  IMAGE_NAME,
  ImageRequest,
  SOCKET_NAME,
  type ImageLine,
  type UnpackFault,
} from './unpack-protocol.ts';

const LAYER_PATH = /^\/layers\/(\d{1,4})$/u;
const MAX_MESSAGE = 2000;

/** Serves until the process ends. All paths are relative to the working directory. `tar2sqfs` is a program. */
export async function serveUnpacking(tar2sqfs: string): Promise<void> {
  const server = createServer((request, response) => {
    const left = new AbortController();
    response.once('close', () => left.abort());
    answer(request, response, { tar2sqfs, signal: left.signal }).catch(() => response.destroy());
  });
  // A layer may take as long as the runner lets it.
  server.requestTimeout = 0;
  server.listen(SOCKET_NAME);
  await once(server, 'listening');
}

interface Means {
  tar2sqfs: string;
  signal: AbortSignal;
}

async function answer(request: IncomingMessage, response: ServerResponse, means: Means): Promise<void> {
  const url = new URL(request.url ?? '/', 'http://unpack');
  const layer = LAYER_PATH.exec(url.pathname)?.[1];
  const send = (line: unknown): void => void response.write(`${JSON.stringify(line)}\n`);
  try {
    if (request.method === 'PUT' && layer !== undefined) {
      const maxBytes = Number(url.searchParams.get('max_bytes'));
      send({ digest: await unpackLayer(request, { targetPath: layer, maxBytes, signal: means.signal }) });
    } else await makeImage(ImageRequest.parse(await json(request)), means, send);
  } catch (error) {
    send({ error: describe(error) });
    // A connection that closes with unread input would take the answer with it.
    await finished(request.resume()).catch(() => undefined);
  }
  response.end();
}

async function makeImage(
  { layers, timeoutMs, ...limits }: ImageRequest,
  { tar2sqfs, signal }: Means,
  send: (line: ImageLine) => void,
): Promise<void> {
  const paths = Array.from({ length: layers }, (_, index) => String(index));
  const tree = await readLayers(paths, limits, signal);
  send({ content_bytes: tree.contentBytes });
  const onBytes = (bytes: number): void => send({ bytes });
  await buildSquashfs({
    tool: tar2sqfs,
    outputPath: IMAGE_NAME,
    timeoutMs,
    signal,
    write: (writer) => writeFlatTar(tree, paths, writer, { signal, onBytes }),
  });
  send({ made: { acls: tree.acls } });
}

function describe(error: unknown): UnpackFault {
  const message = (error instanceof Error ? error.message : String(error)).slice(0, MAX_MESSAGE);
  if (error instanceof LayerError) return { kind: 'layer', message };
  if (error instanceof ProcessError && error.isTimeout) return { kind: 'time', message };
  const saysSo = error instanceof ProcessError && error.stderr.includes('No space left on device');
  return { kind: saysSo || isDiskFull(error) ? 'space' : 'other', message };
}
