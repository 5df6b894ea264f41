import { AppError } from '@coppice/contract';
import { formatTraceparent, type SpanContext } from './traceparent.ts';

export type SpanKind = 'server' | 'client' | 'internal';

/** Names by the semantic conventions of OpenTelemetry, or below `coppice.`. Values hold no text of users or guests. */
export type Attributes = Readonly<Record<string, string | number | boolean>>;

export interface SpanStart {
  kind: SpanKind;
  attributes?: Attributes | undefined;
  /** Unix milliseconds. */
  startMs: number;
  /** A span of another process that this one continues. */
  remote?: SpanContext | undefined;
  /** A span of another trace that caused this one. */
  link?: SpanContext | undefined;
}

/** A span that the tracer records. */
export interface RecordedSpan {
  readonly context: SpanContext;
  rename(name: string): void;
  set(attributes: Attributes): void;
  markFailed(): void;
  end(endMs: number): void;
}

export interface Tracer {
  /** Returns undefined if the trace is not sampled. `parent` is of this process. */
  start(name: string, options: SpanStart, parent?: RecordedSpan): RecordedSpan | undefined;
}

/** A status from which on an error is a fault of the service. */
const FIRST_FAULT_STATUS = 500;
/** The clock of spans may differ from the host's by this much before it follows. */
const TOLERATED_DRIFT_MS = 5;

let clockOffsetMs = performance.timeOrigin;

/** Returns Unix milliseconds with a fraction, so that steps within a millisecond keep their order. */
export function spanNowMs(): number {
  const sinceStartMs = performance.now();
  const wallMs = Date.now();
  if (Math.abs(wallMs - clockOffsetMs - sinceStartMs) > TOLERATED_DRIFT_MS)
    clockOffsetMs = wallMs - sinceStartMs;
  return clockOffsetMs + sinceStartMs;
}

/** A span of a sampled trace. */
export class Span {
  readonly #tracer: Tracer;
  readonly #recorded: RecordedSpan;
  readonly #kind: SpanKind;
  #isOpen = true;

  private constructor(tracer: Tracer, recorded: RecordedSpan, kind: SpanKind) {
    this.#tracer = tracer;
    this.#recorded = recorded;
    this.#kind = kind;
  }

  /** Starts a span without a parent in this process. Returns undefined if its trace is not sampled. */
  static start(tracer: Tracer, name: string, options: SpanStart): Span | undefined {
    const recorded = tracer.start(name, options);
    return recorded && new Span(tracer, recorded, options.kind);
  }

  /** False when it has ended. Work that is then still under way is no part of the trace. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  get context(): SpanContext {
    return this.#recorded.context;
  }

  get traceparent(): string {
    return formatTraceparent(this.context);
  }

  /** Fields of log lines, with the names that OpenTelemetry gives them in logs that are no OTLP. */
  get logFields(): { trace_id: string; span_id: string } {
    return { trace_id: this.context.traceId, span_id: this.context.spanId };
  }

  startChild(name: string, options: Partial<SpanStart> = {}): Span | undefined {
    const kind = options.kind ?? 'internal';
    const startMs = options.startMs ?? spanNowMs();
    const recorded = this.#tracer.start(name, { ...options, kind, startMs }, this.#recorded);
    return recorded && new Span(this.#tracer, recorded, kind);
  }

  /** Call before the end. */
  rename(name: string): void {
    this.#recorded.rename(name);
  }

  /** Has no effect after the end. */
  set(attributes: Attributes): void {
    if (this.#isOpen) this.#recorded.set(attributes);
  }

  /**
   * Notes the code of an error, never its message, which may quote the caller. A mistake of the caller is a failure
   * only of a call, as the semantic conventions have it.
   */
  fail(error: unknown): void {
    const isMistake = error instanceof AppError && error.status < FIRST_FAULT_STATUS;
    this.set({ 'error.type': nameOf(error) });
    if (!isMistake || this.#kind === 'client') this.markFailed();
  }

  markFailed(): void {
    if (this.#isOpen) this.#recorded.markFailed();
  }

  /** Has no effect after the first call. */
  end(endMs = spanNowMs()): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#recorded.end(endMs);
  }
}

function nameOf(error: unknown): string {
  if (error instanceof AppError) return error.code;
  return error instanceof Error ? error.name : '_OTHER';
}
