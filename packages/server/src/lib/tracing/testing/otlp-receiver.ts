/**
 * A collector for tests: a real HTTP server that decodes the spans which it gets, by the schema of
 * https://github.com/open-telemetry/opentelemetry-proto.
 */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pollUntil } from '../../waiting/deadline.ts';
import { readBytes, readFields, readMessages, readNumber, readText, type Fields } from './protobuf-reader.ts';

type AttributeValue = string | number | boolean;

export interface ReceivedSpan {
  traceId: string;
  spanId: string;
  /** Empty for the root of a trace. */
  parentId: string;
  name: string;
  kind: 'internal' | 'server' | 'client' | 'other';
  startMs: number;
  endMs: number;
  attributes: Record<string, AttributeValue>;
  links: { traceId: string; spanId: string }[];
  isFailed: boolean;
  /** Text of the status. */
  statusText: string;
  events: number;
  resource: Record<string, AttributeValue>;
}

export interface ReceivedExport {
  path: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** How the collector answers: properly, properly but without a look, never, byte by byte without an end, or an error. */
export type Manner = 'accept' | 'discard' | 'hang' | 'drip' | 'fail';

const KINDS = ['other', 'internal', 'server', 'client'] as const;
const STATUS_ERROR = 2n;
const DRIP_INTERVAL_MS = 100;

export class OtlpReceiver implements AsyncDisposable {
  manner: Manner = 'accept';
  readonly exports: ReceivedExport[] = [];
  readonly spans: ReceivedSpan[] = [];
  readonly #server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { url: path = '', headers } = request;
      this.#receive({ path, headers, body: Buffer.concat(chunks) }, response);
    });
  });

  static async start(port = 0): Promise<OtlpReceiver> {
    const receiver = new OtlpReceiver();
    receiver.#server.listen(port, '127.0.0.1');
    await once(receiver.#server, 'listening');
    return receiver;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Waits for a span, and returns it. */
  waitFor(what: string, fits: (span: ReceivedSpan) => boolean, timeoutMs = 15_000): Promise<ReceivedSpan> {
    const step = `the span ${what} at the collector`;
    return pollUntil({ step, timeoutMs, intervalMs: 20 }, () => this.spans.find(fits));
  }

  /** Also closes one that is closed. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  #receive(received: ReceivedExport, response: ServerResponse): void {
    if (this.manner !== 'discard') this.exports.push(received);
    if (this.manner === 'hang') return;
    if (this.manner === 'drip') return drip(response);
    if (this.manner === 'fail') {
      response.writeHead(400).end();
      return;
    }
    if (this.manner === 'accept') this.spans.push(...decodeSpans(received.body));
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
  }
}

function drip(response: ServerResponse): void {
  response.writeHead(200);
  const timer = setInterval(() => response.write('x'), DRIP_INTERVAL_MS);
  response.once('close', () => clearInterval(timer));
}

function decodeSpans(body: Buffer): ReceivedSpan[] {
  return readMessages(readFields(body), 1).flatMap((ofResource) => {
    const resource = readMessages(ofResource, 1).map((each) => readAttributes(each, 1));
    return readMessages(ofResource, 2)
      .flatMap((ofScope) => readMessages(ofScope, 2))
      .map((span) => decodeSpan(span, resource[0] ?? {}));
  });
}

function decodeSpan(span: Fields, resource: ReceivedSpan['resource']): ReceivedSpan {
  const [status] = readMessages(span, 15);
  return {
    traceId: readBytes(span, 1).toString('hex'),
    spanId: readBytes(span, 2).toString('hex'),
    parentId: readBytes(span, 4).toString('hex'),
    name: readText(span, 5),
    kind: KINDS[Number(readNumber(span, 6))] ?? 'other',
    startMs: Number(readNumber(span, 7)) / 1e6,
    endMs: Number(readNumber(span, 8)) / 1e6,
    attributes: readAttributes(span, 9),
    links: readMessages(span, 13).map((link) => ({
      traceId: readBytes(link, 1).toString('hex'),
      spanId: readBytes(link, 2).toString('hex'),
    })),
    isFailed: status !== undefined && readNumber(status, 3) === STATUS_ERROR,
    statusText: status === undefined ? '' : readText(status, 2),
    events: readMessages(span, 11).length,
    resource,
  };
}

function readAttributes(fields: Fields, number: number): Record<string, AttributeValue> {
  return Object.fromEntries(
    readMessages(fields, number).map((pair) => {
      const [value] = readMessages(pair, 2);
      return [readText(pair, 1), value === undefined ? '' : readValue(value)];
    }),
  );
}

function readValue(value: Fields): AttributeValue {
  if (value.has(2)) return readNumber(value, 2) === 1n;
  if (value.has(3)) return Number(readNumber(value, 3));
  if (!value.has(4)) return readText(value, 1);
  const bits = Buffer.alloc(8);
  bits.writeBigUInt64LE(readNumber(value, 4));
  return bits.readDoubleLE();
}
