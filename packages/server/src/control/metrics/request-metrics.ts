/** Counts the requests to the API, and the errors that they got. */
import { STATUS_CODES } from 'node:http';
import type { ErrorCode } from '@coppice/contract';
import { Counter, Histogram, type Registry } from 'prom-client';

/** A guest answers requests to its ports, and a client chooses the method: neither may add labels without end. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
const OTHER = 'other';
/** Up to the longest create: an image that is pulled and prepared. */
const BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

export interface MeasuredRequest {
  method: string;
  /** Pattern of the route; undefined if there is none. */
  route: string | undefined;
  /** Undefined if the connection ended before the answer. */
  status: number | undefined;
  durationMs: number;
}

export class RequestMetrics {
  readonly #requests: Counter<'method' | 'route' | 'status'>;
  readonly #durations: Histogram<'method' | 'route'>;
  readonly #errors: Counter<'code'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#requests = new Counter({
      name: 'coppice_http_requests_total',
      help: 'Requests that have ended. status is "aborted" if the connection ended before the answer.',
      labelNames: ['method', 'route', 'status'],
      registers,
    });
    this.#durations = new Histogram({
      name: 'coppice_http_request_duration_seconds',
      help: 'Time from a request to the end of its answer. That of a stream is the time that it was open.',
      labelNames: ['method', 'route'],
      buckets: BUCKETS_S,
      registers,
    });
    this.#errors = new Counter({
      name: 'coppice_errors_total',
      help: 'Errors that callers got, also in a stream that had begun.',
      labelNames: ['code'],
      registers,
    });
  }

  note({ method: requested, route = 'none', status, durationMs }: MeasuredRequest): void {
    const method = METHODS.has(requested) ? requested : OTHER;
    this.#requests.inc({ method, route, status: nameStatus(status) });
    this.#durations.observe({ method, route }, durationMs / 1000);
  }

  countError(code: ErrorCode): void {
    this.#errors.inc({ code });
  }
}

function nameStatus(status: number | undefined): string {
  if (status === undefined) return 'aborted';
  return STATUS_CODES[status] === undefined ? OTHER : String(status);
}
