/**
 * Keeps a collector from doing harm: each export ends by its deadline with all that it holds, whatever the collector
 * does, and the log has one line when spans begin to be lost and one when they are exported again.
 */
import type { Agent } from 'node:http';
import { ExportResultCode } from '@opentelemetry/core';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace';
import type { Logger } from 'pino';

type Done = Parameters<SpanExporter['export']>[1];
type Result = Parameters<Done>[0];

const MAX_REASON_LENGTH = 200;
/** A collector that is a little too slow would else fill the log. */
const WARNING_INTERVAL_MS = 60_000;

export interface WatchedExporterOptions {
  /** Holds the connections to the collector. */
  agent: Pick<Agent, 'destroy'>;
  /** Spans that wait for their export; further ones are dropped. */
  maxQueuedSpans: number;
  deadlineMs: number;
  log: Logger;
}

export class WatchedExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #options: WatchedExporterOptions;
  readonly #underWay = new Set<(error: Error) => void>();
  #queuedSpans = 0;
  #isFailing = false;
  #warnedAt = -Infinity;
  #lostSpans = 0;

  constructor(exporter: SpanExporter, options: WatchedExporterOptions) {
    this.#exporter = exporter;
    this.#options = options;
  }

  /** Call for each span that is about to be queued. */
  noteQueued(): void {
    const { maxQueuedSpans } = this.#options;
    if (this.#queuedSpans < maxQueuedSpans) this.#queuedSpans += 1;
    else this.noteFailure(new Error(`more than ${maxQueuedSpans} spans wait for the collector`), 1);
  }

  export(spans: ReadableSpan[], done: Done): void {
    this.#queuedSpans -= spans.length;
    const { deadlineMs, agent } = this.#options;
    const finish = (result: Result): void => {
      if (!this.#underWay.delete(giveUp)) return;
      clearTimeout(timer);
      if (result.code === ExportResultCode.SUCCESS) this.#noteSuccess();
      else this.noteFailure(result.error, spans.length);
      done(result);
    };
    const giveUp = (error: Error): void => finish({ code: ExportResultCode.FAILED, error });
    const timer = setTimeout(() => {
      giveUp(new Error(`the collector did not answer within ${deadlineMs} ms`));
      // A collector that sends its answer byte by byte would hold its connection and the batch.
      agent.destroy();
    }, deadlineMs);
    timer.unref();
    this.#underWay.add(giveUp);
    this.#exporter.export(spans, finish);
  }

  forceFlush(): Promise<void> {
    return this.#exporter.forceFlush?.() ?? Promise.resolve();
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }

  /** Ends all exports, which lose their spans. */
  abandon(): void {
    for (const giveUp of this.#underWay) giveUp(new Error('the service stops'));
    this.#options.agent.destroy();
  }

  /** Logs the first failure since the last success, but not more than one a minute. */
  noteFailure(error: Error | undefined, spans = 0): void {
    this.#lostSpans += spans;
    const now = performance.now();
    if (this.#isFailing || now - this.#warnedAt < WARNING_INTERVAL_MS) return;
    this.#isFailing = true;
    this.#warnedAt = now;
    const reason = (error?.message ?? 'no reason').slice(0, MAX_REASON_LENGTH);
    this.#options.log.warn({ reason }, 'traces are not exported and are lost; requests are not affected');
  }

  #noteSuccess(): void {
    if (!this.#isFailing) return;
    this.#isFailing = false;
    this.#options.log.info({ lost_spans: this.#lostSpans }, 'traces are exported again');
    this.#lostSpans = 0;
  }
}
