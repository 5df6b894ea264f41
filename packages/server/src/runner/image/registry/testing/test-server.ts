/** A web server on a loopback port that acts as a registry, good or hostile. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';

export type Handler = (request: http.IncomingMessage, response: http.ServerResponse) => void;

export interface TestServer extends AsyncDisposable {
  /** `127.0.0.1:<port>` */
  name: string;
  url: string;
  /** Request lines such as `GET /v2/x/manifests/1`, with two of their headers. */
  requests: { line: string; authorization: string | undefined; range: string | undefined }[];
}

export async function startServer(
  handler: Handler,
  tls?: { key: string; cert: string },
): Promise<TestServer> {
  const requests: TestServer['requests'] = [];
  const listener: Handler = (request, response) => {
    const { authorization, range } = request.headers;
    requests.push({ line: `${request.method} ${request.url}`, authorization, range });
    handler(request, response);
  };
  const server = tls === undefined ? http.createServer(listener) : https.createServer(tls, listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const name = `127.0.0.1:${port}`;
  return {
    name,
    url: `${tls === undefined ? 'http' : 'https'}://${name}`,
    requests,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

export function digestOf(data: Buffer | string): string {
  return `sha256:${createHash('sha256').update(data).digest('hex')}`;
}

const MANIFEST_TYPE = 'application/vnd.oci.image.manifest.v1+json';

/** Answers like a registry with one manifest for every name, and these blobs. */
export function serveImage(manifest: string, blobs: readonly Buffer[]): Handler {
  const byDigest = new Map(blobs.map((blob) => [digestOf(blob), blob]));
  return (request, response) => {
    const last = request.url?.split('/').at(-1) ?? '';
    const blob = byDigest.get(last);
    if (request.url?.includes('/manifests/') === true) {
      response.setHeader('content-type', MANIFEST_TYPE);
      response.setHeader('docker-content-digest', digestOf(manifest));
      response.end(request.method === 'HEAD' ? undefined : manifest);
    } else if (blob === undefined) {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{}');
    } else {
      response.end(blob);
    }
  };
}

/** Serves only requests with this Authorization header, and challenges others. */
export function guarded(expected: () => string, challenge: string, handler: Handler): Handler {
  return (request, response) => {
    if (request.headers.authorization === expected()) handler(request, response);
    else response.writeHead(401, { 'www-authenticate': challenge }).end('{"errors":[]}');
  };
}
