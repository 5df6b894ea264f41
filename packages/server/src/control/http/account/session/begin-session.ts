import { AppError, type AccountRecord } from '@coppice/contract';
import type { FastifyReply } from 'fastify';
import type { HttpParts } from '../../parts.ts';
import { setSessionCookie } from './session-cookie.ts';

type Accounts = HttpParts['accounts'];

/** Sets the cookie of a new session, and tells who is signed in by it. */
export async function beginSession(
  reply: FastifyReply,
  accounts: Accounts,
  userId: string,
): Promise<AccountRecord> {
  const { clientAddress, headers } = reply.request;
  const origin = { clientAddress, userAgent: headers['user-agent'] ?? '' };
  setSessionCookie(reply, await accounts.sessions.begin(userId, origin));
  return getAccount(accounts, userId);
}

export async function getAccount({ organizations }: Accounts, userId: string): Promise<AccountRecord> {
  const account = await organizations.findAccount(userId);
  if (account === undefined) throw new AppError('unauthorized', 'nobody is signed in');
  return account;
}
