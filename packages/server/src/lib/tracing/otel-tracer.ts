/** The only module that records with OpenTelemetry. It is loaded if a collector is configured. */
import { readFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import {
  ROOT_CONTEXT,
  SpanKind as OtelSpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
  type Context,
  type Span as OtelSpan,
  type Tracer as Api,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type Sampler,
} from '@opentelemetry/sdk-trace';
import type { Logger } from 'pino';
import { readTrust, SYSTEM_CERTIFICATES } from '../tls/trust.ts';
import { DeadlineError, withDeadline } from '../waiting/deadline.ts';
import type { Attributes, RecordedSpan, SpanKind, SpanStart, Tracer } from './span.ts';
import type { SpanContext } from './traceparent.ts';
import type { SamplerConfig, TracingConfig } from './tracing-config.ts';
import { WatchedExporter } from './watched-exporter.ts';

/** About 1 KiB each. Spans beyond that are lost. */
const MAX_QUEUED_SPANS = 2048;
const MAX_BATCH_SPANS = 512;
const EXPORT_DEADLINE_MS = 10_000;
/** Exports at once: more than one only when a shutdown sends what is left. */
const MAX_EXPORTS = MAX_QUEUED_SPANS / MAX_BATCH_SPANS + 1;
/** How long a shutdown waits for the collector. */
const CLOSE_DEADLINE_MS = 2000;
const SPAN_LIMITS = { attributeCountLimit: 32, attributeValueLengthLimit: 256, linkCountLimit: 1 };

const KINDS: Readonly<Record<SpanKind, OtelSpanKind>> = {
  server: OtelSpanKind.SERVER,
  client: OtelSpanKind.CLIENT,
  internal: OtelSpanKind.INTERNAL,
};

class OtelRecordedSpan implements RecordedSpan {
  readonly span: OtelSpan;
  readonly #exporter: WatchedExporter;

  constructor(span: OtelSpan, exporter: WatchedExporter) {
    this.span = span;
    this.#exporter = exporter;
  }

  get context(): SpanContext {
    const { traceId, spanId, traceFlags } = this.span.spanContext();
    return { traceId, spanId, isSampled: (traceFlags & TraceFlags.SAMPLED) !== 0 };
  }

  rename(name: string): void {
    this.span.updateName(name);
  }

  set(attributes: Attributes): void {
    this.span.setAttributes(attributes);
  }

  markFailed(): void {
    this.span.setStatus({ code: SpanStatusCode.ERROR });
  }

  end(endMs: number): void {
    this.#exporter.noteQueued();
    this.span.end(endMs);
  }
}

export class OtelTracer implements Tracer {
  readonly #provider: TracerProvider;
  readonly #exporter: WatchedExporter;
  readonly #api: Api;

  private constructor(provider: TracerProvider, exporter: WatchedExporter, version: string) {
    this.#provider = provider;
    this.#exporter = exporter;
    this.#api = provider.getTracer('coppice', version);
  }

  static open(config: TracingConfig, role: { name: string; version: string; log: Logger }): OtelTracer {
    const { name, version, log } = role;
    const agent = openAgent(config);
    const exporter = new OTLPTraceExporter({
      url: config.url,
      headers: { ...config.headers },
      timeoutMillis: EXPORT_DEADLINE_MS,
      concurrencyLimit: MAX_EXPORTS,
      httpAgentOptions: () => agent,
    });
    const limits = { maxQueuedSpans: MAX_QUEUED_SPANS, deadlineMs: EXPORT_DEADLINE_MS };
    const watched = new WatchedExporter(exporter, { agent, log, ...limits });
    const provider = new TracerProvider({
      resource: resourceFromAttributes({
        'service.name': `coppice-${name}`,
        'service.namespace': 'coppice',
        'service.version': version,
        'service.instance.id': randomUUID(),
        'coppice.role': name,
        ...config.resource,
        ...(config.serviceName === undefined ? {} : { 'service.name': config.serviceName }),
      }),
      sampler: buildSampler(config.sampler),
      spanLimits: SPAN_LIMITS,
      spanProcessors: [
        new BatchSpanProcessor({
          exporter: watched,
          maxQueueSize: MAX_QUEUED_SPANS,
          maxExportBatchSize: MAX_BATCH_SPANS,
          scheduledDelayMillis: config.batchDelayMs,
          // The watched exporter answers first.
          exportTimeoutMillis: 2 * EXPORT_DEADLINE_MS,
        }),
      ],
    });
    return new OtelTracer(provider, watched, version);
  }

  start(name: string, options: SpanStart, parent?: OtelRecordedSpan): OtelRecordedSpan | undefined {
    const { kind, attributes = {}, startMs, remote, link } = options;
    const span = this.#api.startSpan(
      name,
      {
        kind: KINDS[kind],
        attributes: { ...attributes },
        startTime: startMs,
        ...(link === undefined ? {} : { links: [{ context: toOtel(link) }] }),
      },
      contextOf(parent, remote),
    );
    const recorded = new OtelRecordedSpan(span, this.#exporter);
    return recorded.context.isSampled ? recorded : undefined;
  }

  /** Exports what is left. Resolves with false if the collector did not take it in time; it is then lost. */
  async close(): Promise<boolean> {
    try {
      await withDeadline('the export of the last traces', CLOSE_DEADLINE_MS, this.#provider.shutdown());
      return true;
    } catch (error) {
      if (error instanceof DeadlineError) this.#exporter.noteFailure(error);
      return false;
    } finally {
      this.#exporter.abandon();
    }
  }
}

function contextOf(parent: OtelRecordedSpan | undefined, remote: SpanContext | undefined): Context {
  if (parent !== undefined) return trace.setSpan(ROOT_CONTEXT, parent.span);
  return remote === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, toOtel(remote));
}

function toOtel({ traceId, spanId, isSampled }: SpanContext) {
  return { traceId, spanId, traceFlags: isSampled ? TraceFlags.SAMPLED : TraceFlags.NONE, isRemote: true };
}

function buildSampler({ ratio, followsCaller }: SamplerConfig): Sampler {
  const root = new TraceIdRatioBasedSampler(ratio);
  return followsCaller ? new ParentBasedSampler({ root }) : root;
}

function openAgent({ url, caPath }: TracingConfig): HttpAgent | HttpsAgent {
  const options = { keepAlive: true, maxSockets: MAX_EXPORTS };
  if (new URL(url).protocol === 'http:') return new HttpAgent(options);
  return caPath === undefined
    ? new HttpsAgent({ ...options, secureContext: readTrust(SYSTEM_CERTIFICATES) })
    : new HttpsAgent({ ...options, ca: readFileSync(caPath) });
}
