/**
 * The HTTP/2 session with the agent of one VM, which all callers share. The guest is hostile: header blocks and bodies read here are bounded,
 * and every answer has a deadline. Piped streams are bounded by flow control alone.
 */
import http2 from 'node:http2';
import type { Duplex } from 'node:stream';
import { DeadlineError, withDeadline } from '../../lib/waiting/deadline.ts';
import type { AgentPort, VmHandle } from '../vm/vmm.ts';
import { AgentProtocolError, openGeneration } from './ctl-port.ts';
import { DataLine, newMarker } from './data-line.ts';

const MAX_ANSWER_BYTES = 1 << 20;
const STREAM_WINDOW_BYTES = 1 << 20;
/** Large, so that unread streams never starve others: each stream is bounded by its own window. */
const CONNECTION_WINDOW_BYTES = 1 << 30;
const ANSWER_TIMEOUT_MS = 15_000;
const MAX_STREAMS = 100_000;
/** The largest frame the agent may send. Any size costs an emulated guest one system call per 4 KiB. */
const MAX_FRAME_BYTES = 1 << 20;

export interface SessionOptions {
  vm: Pick<VmHandle, 'connectAgent'>;
  /** Increases with every connection to this VM. */
  generation: number;
  timeoutMs: number;
  /** Deadline of each answer to {@link AgentSession.call}; default 15 s. */
  answerTimeoutMs?: number;
}

/** Thrown when the agent's status is not 2xx. The guest controls the body, and so the message. */
class AgentAnswerError extends Error {
  readonly status: number;
  readonly body: Buffer;

  constructor(path: string, status: number, body: Buffer) {
    super(`agent answered ${path} with ${status}: ${body.toString('utf8').slice(0, 500)}`);
    this.name = 'AgentAnswerError';
    this.status = status;
    this.body = body;
  }
}

export class AgentSession {
  readonly #session: http2.ClientHttp2Session;
  readonly #close: () => void;
  readonly answerTimeoutMs: number;

  private constructor(session: http2.ClientHttp2Session, close: () => void, answerTimeoutMs: number) {
    this.#session = session;
    this.#close = close;
    this.answerTimeoutMs = answerTimeoutMs;
  }

  static async open(options: SessionOptions): Promise<AgentSession> {
    const { vm, generation, timeoutMs } = options;
    const { answerTimeoutMs = ANSWER_TIMEOUT_MS } = options;
    // Each port takes one connection at a time: a connection left open would block all later ones.
    using undo = new DisposableStack();
    const connect = async (port: AgentPort): Promise<Duplex> => {
      const socket = await vm.connectAgent(port, timeoutMs);
      return undo.adopt(socket, () => socket.destroy());
    };
    const ctl = await connect('ctl');
    ctl.on('error', () => ctl.destroy());
    const marker = newMarker();
    const line = new DataLine(await connect('data'), marker);
    const { isMarked } = await openGeneration(ctl, { generation, marker }, timeoutMs);
    if (isMarked) await line.passMarker(timeoutMs);
    const data = line.release();
    if (isMarked) data.write(marker);
    const session = http2.connect('http://agent', {
      createConnection: () => data,
      peerMaxConcurrentStreams: MAX_STREAMS,
      maxSessionMemory: 64,
      settings: {
        initialWindowSize: STREAM_WINDOW_BYTES,
        maxFrameSize: MAX_FRAME_BYTES,
        enablePush: false,
        maxHeaderListSize: 16_384,
      },
    });
    // The event arrives a moment later. On a session that was closed meanwhile the call would throw and end the runner.
    session.once('connect', () => {
      if (!session.destroyed) session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    });
    const ports = undo.move();
    const close = (): void => {
      session.destroy();
      ports.dispose();
    };
    session.on('error', close);
    session.on('goaway', close);
    session.on('close', close);
    return new AgentSession(session, close, answerTimeoutMs);
  }

  get closed(): boolean {
    return this.#session.closed || this.#session.destroyed;
  }

  close(): void {
    this.#close();
  }

  /** Opens a raw stream. The caller pipes it and handles its errors. Throws {@link AgentProtocolError} if closed. */
  request(headers: http2.OutgoingHttpHeaders): http2.ClientHttp2Stream {
    if (this.closed) throw new AgentProtocolError('the session is closed');
    return this.#session.request(headers, { endStream: false });
  }

  /**
   * Sends one request and returns its JSON answer. Throws {@link AgentAnswerError} on a status that is not 2xx and
   * DeadlineError after `timeoutMs`.
   */
  async call(
    method: string,
    path: string,
    body?: unknown,
    { timeoutMs = this.answerTimeoutMs } = {},
  ): Promise<unknown> {
    const stream = this.request({ ':method': method, ':path': path });
    const answer = readAnswer(stream, path);
    stream.end(body === undefined ? undefined : JSON.stringify(body));
    return withDeadline(`the agent's answer to ${path}`, timeoutMs, answer, () =>
      stream.close(http2.constants.NGHTTP2_CANCEL),
    );
  }
}

async function readAnswer(stream: http2.ClientHttp2Stream, path: string): Promise<unknown> {
  const head = Promise.withResolvers<http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader>();
  stream.once('response', (headers) => head.resolve(headers));
  stream.once('error', (error) => head.reject(error));
  stream.once('close', () => head.reject(new AgentProtocolError(`the stream of ${path} closed`)));
  const status = (await head.promise)[':status'] ?? 0;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES)
      throw new AgentProtocolError(`the answer to ${path} is over ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  if (status < 200 || status > 299) throw new AgentAnswerError(path, status, body);
  if (body.length === 0) return undefined;
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch (error) {
    throw new AgentProtocolError(`the answer to ${path} is not JSON: ${String(error)}`);
  }
}

type Session = Pick<AgentSession, 'closed' | 'close'>;

/**
 * One session with an agent, shared by all callers. It is opened when first needed and reopened after a loss. Callers
 * share an opening, which has its own deadlines. Each caller waits for it with its own deadline, which ends nothing for
 * the others.
 */
export class SharedSession<T extends Session = AgentSession> {
  readonly #open: () => Promise<T>;
  #session: T | undefined;
  #opening: Promise<T> | undefined;

  /** `open` must reject with DeadlineError when the agent does not answer in time. */
  constructor(open: () => Promise<T>) {
    this.#open = open;
  }

  /** Returns the open session. Throws DeadlineError after `timeoutMs`, or the error of the opening. */
  async get(timeoutMs: number): Promise<T> {
    if (this.#session !== undefined && !this.#session.closed) return this.#session;
    const left = new AbortController();
    const opening = this.#join(left.signal);
    return withDeadline('the session with the agent', timeoutMs, opening, () => left.abort());
  }

  close(): void {
    this.#session?.close();
  }

  /**
   * An opening that another caller started may reach its deadline before this caller does. Then this caller joins the
   * next one.
   */
  async #join(left: AbortSignal): Promise<T> {
    for (;;) {
      this.#opening ??= this.#openOnce();
      try {
        return await this.#opening;
      } catch (error) {
        if (!(error instanceof DeadlineError) || left.aborted) throw error;
      }
    }
  }

  async #openOnce(): Promise<T> {
    try {
      this.#session = await this.#open();
      return this.#session;
    } finally {
      this.#opening = undefined;
    }
  }
}
