/** The requests of a runner that joins to the internal listener of a control. */
import { once } from 'node:events';
import { X509Certificate } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { connect, type TLSSocket } from 'node:tls';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import {
  formatAddress,
  JoinAnswer,
  type HostAndPort,
  type JoinRequest,
} from '../../lib/protocol/join-protocol.ts';
import { RunnerError } from '../../lib/protocol/runner-protocol.ts';
import { findControlId, fingerprintOf } from '../../lib/tls/control-role.ts';
import { describeTlsError } from '../../lib/tls/describe-tls-error.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

const CONNECT_DEADLINE_MS = 10_000;
/** Includes the time in which control connects back. */
const JOIN_DEADLINE_MS = 40_000;
const MAX_ANSWER_CHARACTERS = 64 << 10;
const MIN_VERSION = 'TLSv1.3';
const ADDRESS_HINT = 'the URL is that of COPPICE_INTERNAL_LISTEN on the machine of a control';

/** Returns the certificate of the control's authority in PEM. Throws unless it is the one with that fingerprint. */
export async function fetchAuthority(control: HostAndPort, fingerprint: string): Promise<string> {
  // Nothing is sent over this connection, and its answer is compared with the token.
  const socket = connect({ ...control, rejectUnauthorized: false, minVersion: MIN_VERSION });
  try {
    await once(socket, 'secureConnect', { signal: AbortSignal.timeout(stretched(CONNECT_DEADLINE_MS)) });
    return findAuthority(socket, control, fingerprint);
  } catch (error) {
    throw error instanceof AppError ? error : cannotConnect(control, error);
  } finally {
    socket.on('error', () => undefined);
    socket.destroy();
  }
}

function findAuthority(socket: TLSSocket, control: HostAndPort, fingerprint: string): string {
  const issuer = socket.getPeerX509Certificate()?.issuerCertificate;
  if (issuer === undefined)
    throw new AppError(
      'conflicting_options',
      `the server at ${formatAddress(control)} is not the internal listener of a control: ${ADDRESS_HINT}`,
    );
  if (fingerprintOf(issuer) === fingerprint) return issuer.toString();
  throw new AppError(
    'conflicting_options',
    `the control at ${formatAddress(control)} belongs to another installation than the token: use the token of that ` +
      'installation, or the URL of a control of the one that made the token',
  );
}

/** Sends the request to a control of the authority, and returns its answer. Throws the error of control. */
export async function postJoin(
  control: HostAndPort,
  authority: string,
  request: JoinRequest,
): Promise<JoinAnswer> {
  const { status, body } = await post(control, authority, JSON.stringify(request));
  const parsed = parseJson(body);
  const answer = JoinAnswer.safeParse(parsed);
  if (status === 201 && answer.success) return answer.data;
  const refusal = z.object({ error: RunnerError }).safeParse(parsed);
  if (refusal.success) throw new AppError(refusal.data.error.code, refusal.data.error.message);
  throw new AppError(
    'internal',
    `the control at ${formatAddress(control)} gave an answer that is no answer to a join`,
  );
}

async function post(
  control: HostAndPort,
  authority: string,
  body: string,
): Promise<{ status: number; body: string }> {
  const sent = httpsRequest({
    ...control,
    method: 'POST',
    path: '/join',
    agent: false,
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
    ca: authority,
    minVersion: MIN_VERSION,
    checkServerIdentity: (_host, { raw }) =>
      findControlId(new X509Certificate(raw)) === undefined
        ? new Error('the certificate is that of no control')
        : undefined,
    signal: AbortSignal.timeout(stretched(JOIN_DEADLINE_MS)),
  });
  try {
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    const answered = await text(response);
    return { status: response.statusCode ?? 0, body: answered.slice(0, MAX_ANSWER_CHARACTERS) };
  } catch (error) {
    throw cannotConnect(control, error);
  }
}

function cannotConnect(control: HostAndPort, error: unknown): AppError {
  return new AppError(
    'unavailable',
    `the control at ${formatAddress(control)} cannot be reached (${describeTlsError(error)}): ${ADDRESS_HINT}, and its port must be open ` +
      'for this machine',
    { cause: error },
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
