import { AppError, type AccountRecord } from '@coppice/contract';
import type { FastifyReply } from 'fastify';
import type { HttpParts } from '../../parts.ts';
import { setSessionCookie } from './session-cookie.ts';

type Accounts = HttpParts['accounts'];

/** Begins a session, sets its cookie, and returns the user's account. */
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

/** Throws `unauthorized` when the user does not exist. */
export async function getAccount({ organizations }: Accounts, userId: string): Promise<AccountRecord> {
  const account = await organizations.findAccount(userId);
  if (account === undefined) throw new AppError('unauthorized', 'not signed in');
  return account;
}
