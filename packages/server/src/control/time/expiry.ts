import { AppError } from '@coppice/contract';

/**
 * Returns the time at which something expires, in Unix milliseconds. Throws `invalid_request` if it has passed, or is
 * more than `maxAheadMs` ahead.
 */
export function checkExpiry(
  expiresAt: number | null,
  { wallMs, maxAheadMs }: { wallMs: number; maxAheadMs: number },
): number | null {
  if (expiresAt === null || (expiresAt > wallMs && expiresAt <= wallMs + maxAheadMs)) return expiresAt;
  const latest = new Date(wallMs + maxAheadMs).toISOString();
  const remedy = expiresAt > wallMs ? `choose a time until ${latest}` : 'choose a time in the future';
  const message = `expires_at: it is ${new Date(wallMs).toISOString()} now; ${remedy}`;
  throw new AppError('invalid_request', message);
}
