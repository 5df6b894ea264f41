/** Calls of the runner that measure: itself, and single VMs. */
import { agentPath, readGuest } from './guest-requests.ts';
import { get, vmPath, type RunnerConnection } from './runner-connection.ts';
import {
  GuestMetrics,
  RunnerMetrics,
  VmMetrics,
  type VmMetricsQuery,
} from '../../lib/protocol/metrics-protocol.ts';

/** Less than the 10 s after which Prometheus gives up a scrape. */
const RUNNER_DEADLINE_MS = 3000;
const GUEST_DEADLINE_MS = 2000;
const MAX_GUEST_BYTES = 4096;

export class RunnerMeasures {
  readonly #connection: RunnerConnection;

  constructor(connection: RunnerConnection) {
    this.#connection = connection;
  }

  /** A runner that is slow must not hold up the caller. */
  runner(): Promise<RunnerMetrics> {
    const request = { ...get('/metrics'), headDeadlineMs: RUNNER_DEADLINE_MS };
    return this.#connection.callJson(request, RunnerMetrics);
  }

  /** Measured on the host. Throws `not_found` if the runner knows nothing of the VM. */
  vm(id: string, { since_ms, step_s }: VmMetricsQuery): Promise<VmMetrics> {
    const query = new URLSearchParams({ since_ms: String(since_ms), step_s: String(step_s) });
    return this.#connection.callJson(get(`${vmPath(id)}/metrics?${query.toString()}`), VmMetrics);
  }

  /** Reported by the guest, which may lie. Throws if it does not answer in time, or violates the protocol. */
  async guest(id: string): Promise<GuestMetrics> {
    const request = { ...get(agentPath(id, 'metrics')), headDeadlineMs: GUEST_DEADLINE_MS };
    return readGuest(this.#connection, request, { schema: GuestMetrics, maxBytes: MAX_GUEST_BYTES });
  }
}
