/** Queries the state of the service that uses this run directory. */
import http from 'node:http';
import https from 'node:https';
import http2 from 'node:http2';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import type { Config } from '../config/config.ts';
import { withDeadline } from '../lib/waiting/deadline.ts';
import { RunnerStatus } from '../lib/protocol/runner-protocol.ts';

const TIMEOUT_MS = 3000;
const ABSENT = new Set(['ENOENT', 'ECONNREFUSED']);
const Health = z.object({ version: z.string() });

export type ServiceState =
  | { state: 'absent' }
  | { state: 'closed'; reason: string }
  | { state: 'running'; status: RunnerStatus; version?: string };

export async function askService(config: Config): Promise<ServiceState> {
  try {
    const status = await withDeadline('the answer of the runner', TIMEOUT_MS, readStatus(config));
    const version = await readVersion(config.control.listen);
    return { state: 'running', status, ...(version === undefined ? {} : { version }) };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (ABSENT.has(code ?? '')) return { state: 'absent' };
    return {
      state: 'closed',
      reason: code === 'EACCES' ? 'only the user of the service may query it' : message,
    };
  }
}

async function readStatus({ runner }: Config): Promise<RunnerStatus> {
  const failed = Promise.withResolvers<never>();
  const socket = connect(runner.socketPath);
  socket.once('error', (error) => failed.reject(error));
  const session = http2.connect('http://runner', { createConnection: () => socket });
  session.once('error', (error) => failed.reject(error));
  try {
    const stream = session.request({ ':path': '/status' });
    stream.once('error', (error) => failed.reject(error));
    return RunnerStatus.parse(JSON.parse(await Promise.race([text(stream), failed.promise])));
  } finally {
    session.destroy();
  }
}

/** Returns undefined if the API does not answer at the configured address. */
async function readVersion(listen: { host: string; port: number }): Promise<string | undefined> {
  if (listen.port === 0) return undefined;
  const answers = [http, https].map((protocol) => askHealth(protocol, listen).catch(() => undefined));
  return (await Promise.all(answers)).find((version) => version !== undefined);
}

function askHealth(
  protocol: typeof http | typeof https,
  { host, port }: { host: string; port: number },
): Promise<string> {
  const version = Promise.withResolvers<string>();
  // The certificate is for a name, but this request goes to an address of this machine, and reads only the version.
  const options = {
    host,
    port,
    path: '/healthz',
    timeout: TIMEOUT_MS,
    rejectUnauthorized: false,
    agent: false,
  };
  const request = protocol.get(options, (response) => {
    text(response)
      .then(
        (body) => version.resolve(Health.parse(JSON.parse(body)).version),
        (error: unknown) => version.reject(error),
      )
      .catch((error: unknown) => version.reject(error));
  });
  request.once('timeout', () => request.destroy(new Error('no answer')));
  request.once('error', (error) => version.reject(error));
  return version.promise;
}
