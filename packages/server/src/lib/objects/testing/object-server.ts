/** A real S3 server for tests: versitygw over a temporary directory, on loopback or in a network namespace. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { MadeCertificate } from '../../tls/testing/certificate.ts';
import { pollUntil } from '../../waiting/deadline.ts';
import type { S3Location } from '../object-store-config.ts';

export const BUCKET = 'objects';
const ACCESS_KEY = 'test-access-key';
export const SECRET_KEY = 'test-secret-key-that-no-error-shows';
const START_TIMEOUT_MS = 20_000;
const STOP_TIMEOUT_MS = 5000;

export interface ObjectServerOptions {
  tls?: MadeCertificate;
  /** Domain below which buckets are host names. */
  virtualDomain?: string;
  /** Default: 127.0.0.1. */
  address?: string;
  /** Command that runs its arguments where that address is, under its own process id. */
  inside?: readonly string[];
}

export class ObjectServer implements AsyncDisposable {
  readonly port: number;
  readonly #directory: string;
  readonly #options: ObjectServerOptions;
  #child: ChildProcess | undefined;

  private constructor(port: number, options: ObjectServerOptions) {
    this.port = port;
    this.#options = options;
    this.#directory = mkdtempSync(join(tmpdir(), 'cop-s3-'));
    mkdirSync(join(this.#directory, 'data', BUCKET), { recursive: true });
  }

  /** Starts a server. Its credentials are in the environment of this process, where the standard chain finds them. */
  static async start(options: ObjectServerOptions = {}): Promise<ObjectServer> {
    process.env['AWS_ACCESS_KEY_ID'] = ACCESS_KEY;
    process.env['AWS_SECRET_ACCESS_KEY'] = SECRET_KEY;
    const server = new ObjectServer(await findFreePort(), options);
    await server.resume();
    return server;
  }

  get endpoint(): string {
    return `${this.#options.tls === undefined ? 'http' : 'https'}://${this.#address}:${this.port}`;
  }

  /** Directory of the bucket: each object is a file with its key as the name. */
  get bucketDirectory(): string {
    return join(this.#directory, 'data', BUCKET);
  }

  locate(changes: Partial<S3Location> = {}): S3Location {
    return {
      bucket: BUCKET,
      prefix: '',
      endpoint: this.endpoint,
      region: 'us-east-1',
      isPathStyle: true,
      caPath: undefined,
      ...changes,
    };
  }

  /** Writes a credentials file. Returns its path. */
  writeCredentials(id: string, secret: string): string {
    const path = join(this.#directory, 'credentials');
    writeFileSync(path, `[default]\naws_access_key_id=${id}\naws_secret_access_key=${secret}\n`);
    return path;
  }

  /** Starts the server again, with its data. */
  async resume(): Promise<void> {
    const program = process.env['COPPICE_TEST_OBJECT_SERVER'];
    if (program === undefined)
      throw new Error('COPPICE_TEST_OBJECT_SERVER is unset; run this through npm test');
    const [command = '', ...args] = [...(this.#options.inside ?? []), program, ...this.#buildArguments()];
    const child = spawn(command, args, {
      stdio: 'ignore',
      env: { ...process.env, ROOT_ACCESS_KEY: ACCESS_KEY, ROOT_SECRET_KEY: SECRET_KEY },
    });
    this.#child = child;
    const failed = once(child, 'error').then(([error]) => Promise.reject(error as Error));
    const wait = { step: 'the start of versitygw', timeoutMs: START_TIMEOUT_MS, intervalMs: 20 };
    await Promise.race([failed, pollUntil(wait, () => this.#isListening(child))]);
  }

  /** Ends the server. Its data stays. */
  async stop(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await exited;
    clearTimeout(timer);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  get #address(): string {
    return this.#options.address ?? '127.0.0.1';
  }

  #buildArguments(): string[] {
    const { tls, virtualDomain } = this.#options;
    return [
      '--port',
      `${this.#address}:${this.port}`,
      '--quiet',
      ...(tls === undefined ? [] : ['--cert', tls.certPath, '--key', tls.keyPath]),
      ...(virtualDomain === undefined ? [] : ['--virtual-domain', virtualDomain]),
      'posix',
      join(this.#directory, 'data'),
    ];
  }

  async #isListening(child: ChildProcess): Promise<true | undefined> {
    if (child.exitCode !== null) throw new Error(`versitygw ended with ${child.exitCode}`);
    const socket = connect(this.port, this.#address);
    const opened = once(socket, 'connect').then(
      () => true as const,
      () => undefined,
    );
    const isOpen = await Promise.race([opened, delay(1000, undefined)]);
    socket.destroy();
    return isOpen;
  }
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
