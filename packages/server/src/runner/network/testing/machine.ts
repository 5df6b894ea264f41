/**
 * A machine on the test's network: a process in its own network namespace, which vanishes with it. It acts as the
 * internet or as a guest. As a guest it has the other end of a TAP exactly as QEMU has it, a descriptor passed at
 * start.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { withDeadline } from '../../../lib/waiting/deadline.ts';

const CALL_TIMEOUT_MS = 10_000;

interface Exchange {
  host: string;
  port: number;
  localAddress?: string;
  timeoutMs: number;
}

export interface MachineCalls {
  /** Runs `ip` commands in the machine. */
  ip(commands: string[]): Promise<void>;
  /** Makes `eth0` the guest's end of the TAP. */
  plugTap(link: { mac: string; mtu: number }): Promise<void>;
  /** Starts servers. TCP: sends the client's address and closes. UDP: answers with the sender's address and port. */
  serve(ports: { tcpPorts: number[]; udpPorts: number[] }): Promise<void>;
  /** Starts a DNS server on port 53 that answers with the query followed by `answer`. */
  serveDns(options: { answer: string }): Promise<void>;
  /** Returns the answer (as hex if a payload was sent), or 'timeout', 'closed', or an error code. */
  connectTcp(options: Exchange & { payloadHex?: string }): Promise<string>;
  /** Returns the answer as hex, or 'timeout', or an error code. */
  sendUdp(options: Exchange & { payloadHex: string }): Promise<string>;
  sendUdpFrom(options: { localPort: number; host: string; port: number; text: string }): Promise<void>;
  /** Opens a TCP connection that stays open. */
  holdTcp(options: { host: string; port: number; timeoutMs: number }): Promise<void>;
  /** Returns the answer (as hex) on the connection of `holdTcp`, or 'timeout', 'closed', or an error code. */
  useHeldTcp(options: { payloadHex: string; timeoutMs: number }): Promise<string>;
  /** Sends one packet of any protocol, without data. */
  sendRaw(options: { host: string; protocol: number }): Promise<void>;
  /** Returns everything that the servers of `serve` have received. */
  seen(argument: null): Promise<{ datagrams: { from: string; text: string }[]; connections: number }>;
}

interface Answer {
  id: number;
  result?: unknown;
  error?: string;
}

export class Machine implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #open = new Map<number, PromiseWithResolvers<unknown>>();
  #lastId = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on('message', (message) => this.#settle(message as Answer));
    child.on('exit', () => {
      for (const call of this.#open.values()) call.reject(new Error('the test machine ended'));
    });
  }

  /** Starts a machine. With a descriptor of a TAP it is a guest; the caller still owns and closes the descriptor. */
  static async start(tapFd?: number): Promise<Machine> {
    const program = fileURLToPath(new URL('machine-program.ts', import.meta.url));
    const stdio = ['ignore', 'inherit', 'inherit', 'ipc', ...(tapFd === undefined ? [] : [tapFd])] as const;
    const child = spawn('unshare', ['--net', process.execPath, program], { stdio: [...stdio] });
    const machine = new Machine(child);
    await withDeadline('start of a test machine', CALL_TIMEOUT_MS, once(child, 'message'));
    await machine.call('ip', ['link set lo up']);
    return machine;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async call<K extends keyof MachineCalls>(
    call: K,
    argument: Parameters<MachineCalls[K]>[0],
  ): Promise<Awaited<ReturnType<MachineCalls[K]>>> {
    const answer = Promise.withResolvers<unknown>();
    this.#lastId += 1;
    this.#open.set(this.#lastId, answer);
    this.#child.send({ id: this.#lastId, call, argument });
    const result = await withDeadline(`test machine: ${call}`, CALL_TIMEOUT_MS, answer.promise);
    return result as Awaited<ReturnType<MachineCalls[K]>>;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
  }

  #settle({ id, result, error }: Answer): void {
    const call = this.#open.get(id);
    this.#open.delete(id);
    if (error === undefined) call?.resolve(result);
    else call?.reject(new Error(error));
  }
}
