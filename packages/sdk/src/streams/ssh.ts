import type { CallOptions } from '../transport/client-options.ts';
import { connect } from './connect.ts';
import type { StreamConnection } from './stream-connection.ts';
import { parseFrame, type FrameSource, type StreamFrame } from './stream-frame.ts';
import type { Transport } from '../transport/transport.ts';
import { buildWireBody, readObject, readString } from '../transport/wire.ts';

/** User and directory of the programs of an SSH connection. */
export interface SshOptions extends CallOptions {
  /** User that runs the programs: name, uid, `name:group` or `uid:gid`. Default: the image's USER, else root. */
  user?: string | undefined;
  /** Directory where they start. Default: the `cwd` of the sandbox, else the image's WORKDIR, else `/workspace`. */
  cwd?: string | undefined;
}

const SSH_FIELDS = { user: 'user', cwd: 'cwd' } as const satisfies Record<
  Exclude<keyof SshOptions, 'signal'>,
  string
>;

/** Far below the limit of 1 MiB for a message. */
const MAX_MESSAGE_BYTES = 65_536;

/**
 * A connection to the SSH server of a sandbox: bytes in both directions. Iterate over it for those of the server, in one
 * loop. Created by `sandbox.ssh()`.
 *
 * @example
 * await using connection = await sandbox.ssh({ user: 'root' });
 * await connection.write(new TextEncoder().encode('SSH-2.0-example\r\n'));
 * for await (const bytes of connection) {
 *   console.log(`the server sent ${bytes.length} bytes`);
 *   break;
 * }
 */
export class SshConnection implements AsyncIterable<Uint8Array<ArrayBuffer>>, AsyncDisposable {
  readonly #connection: StreamConnection<Uint8Array<ArrayBuffer>, void>;

  /** Called by `sandbox.ssh()` only. */
  constructor(connection: StreamConnection<Uint8Array<ArrayBuffer>, void>) {
    this.#connection = connection;
  }

  /**
   * Sends bytes to the server. Resolves when there is room for more. Rejects with {@link CoppiceError} of code `closed`
   * once the connection has ended.
   *
   * @example
   * await using connection = await sandbox.ssh();
   * await connection.write(new TextEncoder().encode('SSH-2.0-example\r\n'));
   */
  async write(data: Uint8Array): Promise<void> {
    for (let start = 0; start < data.length; start += MAX_MESSAGE_BYTES)
      await this.#connection.send(new Uint8Array(data.slice(start, start + MAX_MESSAGE_BYTES)));
  }

  /** Yields the bytes of the server until it has ended. Throws {@link CoppiceError} when the connection is lost. */
  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
    return this.#connection.items();
  }

  /**
   * Ends the connection. Programs on its terminals are hung up.
   *
   * @example
   * const connection = await sandbox.ssh();
   * await connection.close();
   */
  async close(): Promise<void> {
    await this.#connection.close('closed');
  }

  /** Closes the connection at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Opens an SSH connection to the sandbox at `path`. Throws `TypeError` for an unknown option. */
export async function openSsh(
  transport: Transport,
  path: string,
  { signal, ...options }: SshOptions,
): Promise<SshConnection> {
  const query = buildWireBody(options, SSH_FIELDS, 'ssh') as Record<string, string>;
  return new SshConnection(
    await connect(transport, { path, endpoint: '/ssh/ws', query, signal, parse: parseSshMessage }),
  );
}

function parseSshMessage(
  message: string | Uint8Array<ArrayBuffer>,
  source: FrameSource,
): StreamFrame<Uint8Array<ArrayBuffer>, void> | undefined {
  if (typeof message !== 'string') return { item: message };
  return parseFrame(message, source).type === 'ssh_closed' ? { final: undefined } : undefined;
}

/** Reads the host key of the sandbox at `path`. */
export async function readSshHostKey(
  transport: Transport,
  path: string,
  { signal }: CallOptions,
): Promise<string> {
  const request = { method: 'GET', path: `${path}/ssh`, idempotent: true, signal } as const;
  const parse = (value: unknown): string => readString(readObject(value, 'the SSH host'), 'host_key');
  return (await transport.callJson(request, parse)).value;
}
