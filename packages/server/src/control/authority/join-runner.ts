/**
 * Admits a runner that has a token:
 *
 *     token usable? ─► runner admissible? ─► common version? ─► connect back, with the pinned key ─► token used, row written
 *
 * Only the last step changes anything, so a join that fails earlier does not use the token up.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import { get, RunnerConnection } from '../placement/runner-connection.ts';
import { OtherRunnerError } from '../placement/runner-address.ts';
import { holdAt } from '../../lib/fault-directory.ts';
import { parseAddress, type JoinAnswer, type JoinRequest } from '../../lib/protocol/join-protocol.ts';
import { RunnerIdentity } from '../../lib/protocol/runner-protocol.ts';
import { describeVersions, findCommonVersion, PROTOCOL_VERSIONS } from '../../lib/protocol/wire-headers.ts';
import { describeTlsError } from '../../lib/tls/describe-tls-error.ts';
import type { ControlIdentity } from './control-identity.ts';
import { admitRunner, assertAdmissible } from './joined-runners.ts';
import { getUsableToken } from './join-tokens.ts';

export interface JoinParts {
  db: Database;
  region: string;
  identity: ControlIdentity;
  log: Logger;
}

export async function joinRunner(parts: JoinParts, request: JoinRequest): Promise<JoinAnswer> {
  const { db, region, log } = parts;
  const { runner_id: id, fingerprint, address, protocol } = request;
  const token = await getUsableToken(db, request.secret);
  await assertAdmissible(db, { id, fingerprint }, token);
  if (findCommonVersion(protocol) === undefined)
    throw new AppError(
      'conflicting_options',
      `the runner speaks ${describeVersions(protocol)} of the protocol, and this control ` +
        `${describeVersions(PROTOCOL_VERSIONS)}: install the same version of Coppice on both machines`,
    );
  await assertReachable(parts, request);
  await holdAt('join.reached');
  const joinedAt = await admitRunner(db, { id, region, address, fingerprint }, token);
  log.info({ runner_id: id, address, fingerprint }, 'a runner has joined');
  await holdAt('join.admitted');
  return { runner_id: id, joined_at: new Date(joinedAt).toISOString() };
}

/** Connects to the runner as controls will, or throws why they could not. */
async function assertReachable(
  { identity, log }: JoinParts,
  { runner_id: id, address, fingerprint }: JoinRequest,
): Promise<void> {
  const place = parseAddress(address);
  if (place === undefined) throw new AppError('invalid_request', 'address: must be host:port');
  const credentials = () => identity.credentials;
  using connection = new RunnerConnection({ kind: 'network', ...place, fingerprint, credentials }, log);
  let answered: RunnerIdentity;
  try {
    answered = await connection.callJson(get('/status'), RunnerIdentity);
  } catch (error) {
    throw unreachable(address, error);
  }
  if (answered.runner_id !== id)
    throw new AppError(
      'conflicting_options',
      `address: at ${address} is the runner ${answered.runner_id}, and the one that joins is ${id}`,
    );
}

function unreachable(address: string, error: unknown): AppError {
  const reason = findReason(error);
  const remedy =
    reason instanceof OtherRunnerError
      ? 'another program or machine has this address; name the address of the runner with --address'
      : 'name an address with --address that every control reaches, and open the port in the firewall';
  const message = `address: control cannot connect to the runner at ${address} (${describeTlsError(reason)}): ${remedy}`;
  return new AppError('unavailable', message, { cause: error });
}

/** The innermost error says most. */
function findReason(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return error.errors[0];
  return error.cause instanceof Error ? findReason(error.cause) : error;
}
