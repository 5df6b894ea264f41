/** The routes of single captures and their objects: lib/protocol/capture-protocol.ts. */
import type http2 from 'node:http2';
import { CaptureOwner, RemoveCapture } from '../../lib/protocol/capture-protocol.ts';
import type { CaptureObjects } from '../capture-objects/capture-objects.ts';
import { readJson, respondJson } from './exchange.ts';

interface CaptureExchange {
  stream: http2.ServerHttp2Stream;
  url: URL;
  id: string;
}

export type CaptureHandler = (objects: CaptureObjects, exchange: CaptureExchange) => Promise<void>;

export const CAPTURE_ROUTES: readonly (readonly [method: string, path: string, handle: CaptureHandler])[] = [
  [
    'PUT',
    '/captures/:capture',
    async (objects, { stream, id }) => {
      const { organization } = CaptureOwner.parse(await readJson(stream));
      respondJson(stream, 200, await objects.fetch(id, organization));
    },
  ],
  [
    'DELETE',
    '/captures/:capture',
    async (objects, { stream, url, id }) => {
      const { organization } = RemoveCapture.parse(Object.fromEntries(url.searchParams));
      await objects.remove(id, organization);
      respondJson(stream, 200, {});
    },
  ],
  [
    'DELETE',
    '/captures/:capture/local',
    async (objects, { stream, url, id }) => {
      await objects.drop(id, ownerIn(url));
      respondJson(stream, 200, {});
    },
  ],
  [
    'GET',
    '/captures/:capture/objects',
    async (objects, { stream, url, id }) => respondJson(stream, 200, await objects.state(id, ownerIn(url))),
  ],
  [
    'PUT',
    '/captures/:capture/objects',
    async (objects, { stream, id }) => {
      const { organization } = CaptureOwner.parse(await readJson(stream));
      respondJson(stream, 200, await objects.store(id, organization));
    },
  ],
];

function ownerIn(url: URL): string {
  return CaptureOwner.parse(Object.fromEntries(url.searchParams)).organization;
}
