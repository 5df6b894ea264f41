/** The API of Coppice on the emulated host, through an ssh tunnel. */
import { spawn, type ChildProcess } from 'node:child_process';
import { Coppice } from '../packages/sdk/src/index.ts';
import type { LabHost } from './host.ts';
import type { Secrets } from './secrets.ts';
import { waitFor } from './wait-for.ts';

const READY_TIMEOUT_MS = 30 * 60_000;
const CALL_TIMEOUT_MS = 20 * 60_000;
const PROBE_TIMEOUT_MS = 30_000;
const POLL_MS = 500;
const UNAUTHORIZED = 401;
const LISTEN = '127.0.0.1:8080';

export interface Health {
  status: string;
  version: string;
  accelerator: string;
}

export class LabService implements AsyncDisposable {
  readonly #host: LabHost;
  readonly #port: number;
  readonly #secrets: Secrets;
  #tunnel: ChildProcess | undefined;
  #client: Coppice | undefined;

  constructor(host: LabHost, port: number, secrets: Secrets) {
    this.#host = host;
    this.#port = port;
    this.#secrets = secrets;
  }

  get address(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get apiKey(): string {
    return this.#secrets.key;
  }

  get client(): Coppice {
    this.#client ??= this.clientOf(this.#secrets.key);
    return this.#client;
  }

  async acceptsKey(apiKey: string): Promise<boolean> {
    const answer = await fetch(`${this.address}/v1/usage`, {
      headers: { authorization: `Bearer ${apiKey}` },
    });
    if (answer.ok || answer.status === UNAUTHORIZED) return answer.ok;
    throw new Error(`GET /v1/usage answered ${answer.status}: ${await answer.text()}`);
  }

  /** Makes a client without retries: only a first answer counts as acknowledged. */
  clientOf(apiKey: string): Coppice {
    return new Coppice({ baseUrl: this.address, apiKey, timeoutMs: CALL_TIMEOUT_MS, maxRetries: 0 });
  }

  /** Waits until the service reports that it is ready. */
  async ready(): Promise<Health> {
    let last = 'no answer';
    const failure = (): string => `the service on the host did not become ready: ${last}`;
    return waitFor({ timeoutMs: READY_TIMEOUT_MS, intervalMs: POLL_MS, failure }, async () => {
      if (this.#tunnel === undefined || this.#tunnel.exitCode !== null) this.#openTunnel();
      const answer = await this.#probe();
      if (typeof answer !== 'string') return answer;
      last = answer;
      return undefined;
    });
  }

  async #probe(): Promise<Health | string> {
    try {
      const answer = await fetch(`${this.address}/healthz`, {
        signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      });
      return answer.ok ? ((await answer.json()) as Health) : await answer.text();
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  #openTunnel(): void {
    const forward = `127.0.0.1:${this.#port}:${LISTEN}`;
    const words = [
      ...this.#host.sshWords,
      '-o',
      'ExitOnForwardFailure=yes',
      '-N',
      '-L',
      forward,
      'root@127.0.0.1',
    ];
    this.#tunnel = spawn('ssh', words, { stdio: 'ignore' });
  }

  /** Closes the tunnel. Call it before the host goes down. */
  disconnect(): void {
    this.#tunnel?.kill('SIGKILL');
    this.#tunnel = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disconnect();
  }
}
