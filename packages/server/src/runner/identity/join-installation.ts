/**
 * Joins an installation, on the machine of the runner:
 *
 *     authority of the control = hash in the token ─► listen, for controls of that authority only ─► POST /join
 *          ─► control connects back ─► its answer ─► record on disk
 *
 * The secret of the token is sent only to a control whose authority the token names. A join that is killed anywhere can be
 * repeated: key and id are kept, and control takes the same runner again with another token.
 */
import http2 from 'node:http2';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { holdAt } from '../../lib/fault-directory.ts';
import { formatAddress, type HostAndPort, type JoinToken } from '../../lib/protocol/join-protocol.ts';
import type { RunnerIdentity } from '../../lib/protocol/runner-protocol.ts';
import { PROTOCOL_VERSIONS } from '../../lib/protocol/wire-headers.ts';
import { listenForControls, type ControlListener } from './control-listener.ts';
import { fetchAuthority, postJoin } from './join-client.ts';
import { findJoinRecord, joinRecordPath, writeJoinRecord, type JoinRecord } from './join-record.ts';
import { idDirectoryOf, openRunnerId } from './runner-id.ts';
import { openRunnerIdentity } from './runner-identity.ts';

export interface JoinOptions {
  /** Data directory of the runner. The caller has its lock. */
  dataDir: string;
  /** Of a control's internal listener. */
  control: HostAndPort;
  token: JoinToken;
  listen: HostAndPort;
  /** The address that controls use; {@link JoinOptions.listen} by default. */
  address?: HostAndPort | undefined;
  log: Logger;
}

/** Returns the record of the join, which is on disk. Every error names its remedy. */
export async function joinInstallation(options: JoinOptions): Promise<JoinRecord> {
  const { dataDir, control, token, listen, address = listen, log } = options;
  const former = findJoinRecord(dataDir);
  if (former !== undefined)
    throw new AppError(
      'already_exists',
      `${former.runner_id} joined on ${former.joined_at} through ${former.control}: to join anew, revoke it there, stop ` +
        `the runner, and delete ${joinRecordPath(dataDir)}; with the whole data directory it becomes a new runner`,
    );
  assertConcrete(address);
  const id = openRunnerId(idDirectoryOf(dataDir));
  const { cert, key, fingerprint } = openRunnerIdentity(dataDir, id);
  const authority = await fetchAuthority(control, token.authority);
  const credentials = { cert, key, ca: authority };
  await using _ = await answerStatus(
    { runner_id: id, protocol: PROTOCOL_VERSIONS, epoch: 0 },
    options,
    credentials,
  );
  const request = {
    secret: token.secret.reveal(),
    runner_id: id,
    address: formatAddress(address),
    fingerprint,
    protocol: PROTOCOL_VERSIONS,
  };
  const { joined_at } = await postJoin(control, authority, request);
  await holdAt('join.answered');
  const record: JoinRecord = {
    runner_id: id,
    authority,
    control: formatAddress(control),
    address: request.address,
    joined_at,
  };
  writeJoinRecord(dataDir, record);
  log.info({ runner_id: id, control: record.control }, 'this runner has joined');
  return record;
}

const WILDCARDS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

function assertConcrete(address: HostAndPort): void {
  if (!WILDCARDS.has(address.host) && address.port > 0) return;
  throw new AppError(
    'invalid_request',
    `COPPICE_RUNNER_LISTEN: ${formatAddress(address)} is no address to which a control can connect: name one with ` +
      '--address <host:port>',
  );
}

/** Answers the control that connects back, at the address where the runner will listen. */
async function answerStatus(
  identity: RunnerIdentity,
  { listen, log }: JoinOptions,
  credentials: { cert: string; key: string; ca: string },
): Promise<ControlListener> {
  const server = http2.createServer();
  server.on('session', (session) => session.on('error', () => undefined));
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    stream.respond({ ':status': 200, 'content-type': 'application/json' });
    stream.end(JSON.stringify(identity));
  });
  const onSocket = (socket: unknown): void => void server.emit('connection', socket);
  return listenForControls({ listen, credentials, onSocket, log });
}
