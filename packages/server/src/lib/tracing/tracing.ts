/**
 * Traces of requests through the roles. A trace begins with a request to the API, and the runner continues it. Code in
 * between names its steps here, and neither knows nor loads OpenTelemetry:
 *
 *   control   startRequest ─► runInSpan ─► traced(…) ─► traced(call) ── traceparent ──► continueTrace ─► steps   runner
 *
 * Without a tracer every function here only calls the work that it is given. Work outside of an open span, such as that
 * of timers, is not recorded, even if a request caused it.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { Span, spanNowMs, type Attributes, type SpanKind, type Tracer } from './span.ts';
import { parseTraceparent, type SpanContext } from './traceparent.ts';

let installed: Tracer | undefined;
const current = new AsyncLocalStorage<Span | undefined>();

/** Records from here on. A role calls this before it does anything. Disposing the result ends it. */
export function installTracer(tracer: Tracer): Disposable {
  installed = tracer;
  return { [Symbol.dispose]: () => (installed = undefined) };
}

export function isTracing(): boolean {
  return installed !== undefined;
}

/** The span of the present work; undefined without a tracer, outside of a sampled trace, and after the span's end. */
export function findSpan(): Span | undefined {
  if (installed === undefined) return undefined;
  const span = current.getStore();
  return span?.isOpen === true ? span : undefined;
}

/** Starts the trace of a request to this service. Returns undefined if it is not recorded. */
export function startRequest(
  name: string,
  request: { attributes?: Attributes; remote?: SpanContext | undefined; link?: SpanContext | undefined },
): Span | undefined {
  if (installed === undefined) return undefined;
  return Span.start(installed, name, { ...request, kind: 'server', startMs: spanNowMs() });
}

/** Continues the trace of another role. Returns undefined unless that role records it. */
export function continueTrace(name: string, header: string | string[] | undefined): Span | undefined {
  const remote = installed && parseTraceparent(header);
  return remote?.isSampled === true ? startRequest(name, { remote }) : undefined;
}

/** Runs `work` as a part of the span. Without a span it is still no part of another one. */
export function runInSpan<T>(span: Span | undefined, work: () => T): T {
  return installed === undefined ? work() : current.run(span, work);
}

/** Runs `work`, and all that it starts, outside of the trace of the present request. */
export function runUntraced<T>(work: () => T): T {
  return runInSpan(undefined, work);
}

/** Returns a function that does its work in the present span, wherever it is called. */
export function bindToSpan<A extends unknown[], T>(work: (...args: A) => T): (...args: A) => T {
  const span = findSpan();
  return span === undefined ? work : (...args) => runInSpan(span, () => work(...args));
}

/** Records `work` as a span of the present one, which `work` gets. */
export async function traced<T>(
  name: string,
  work: (span: Span | undefined) => Promise<T>,
  options: { kind?: SpanKind; attributes?: Attributes } = {},
): Promise<T> {
  const span = findSpan()?.startChild(name, options);
  if (span === undefined) return work(undefined);
  try {
    return await current.run(span, () => work(span));
  } catch (error) {
    span.fail(error);
    throw error;
  } finally {
    span.end();
  }
}

/** Records steps of the present span when they are over. Times are those of `performance.now()`. */
export interface StepRecorder {
  record: (step: string, startedAt: number, endedAt: number) => void;
}

/** Records the stages of the present span, of which each ends when the next one begins. */
export interface StageRecorder {
  enter: (stage: string) => void;
  end: () => void;
}

/** Returns undefined outside of a trace. `operation` precedes the names of the stages. */
export function traceStages(operation: string): StageRecorder | undefined {
  const recorder = findStepRecorder(operation);
  if (recorder === undefined) return undefined;
  let stage: string | undefined;
  let startedAt = 0;
  const end = (): void => {
    if (stage !== undefined) recorder.record(stage, startedAt, performance.now());
    stage = undefined;
  };
  return {
    end,
    enter: (next) => {
      end();
      stage = next;
      startedAt = performance.now();
    },
  };
}

/** Returns undefined outside of a trace. `operation` precedes the names of the steps. */
export function findStepRecorder(operation: string): StepRecorder | undefined {
  const span = findSpan();
  if (span === undefined) return undefined;
  const offsetMs = spanNowMs() - performance.now();
  return {
    record: (step, startedAt, endedAt) => {
      if (!span.isOpen) return;
      span.startChild(`${operation}.${step}`, { startMs: offsetMs + startedAt })?.end(offsetMs + endedAt);
    },
  };
}
