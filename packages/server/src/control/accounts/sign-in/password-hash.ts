/**
 * Passwords at rest: Argon2id, in the text form that other programs read too and that carries its parameters:
 *
 *     $argon2id$v=19$m=<KiB>,t=<passes>,p=<lanes>$<salt>$<hash>        base64 without padding
 */
import { argon2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { AppError } from '@coppice/contract';
import { Slots } from '../../../lib/waiting/slots.ts';
import { stretched } from '../../../lib/waiting/deadline.ts';

const hashAsync = promisify(argon2);

interface Cost {
  memory: number;
  passes: number;
  parallelism: number;
}

/** The minimum of OWASP's password storage cheat sheet: about 50 ms and 19 MiB for each hash. */
const COST: Cost = { memory: 19_456, passes: 2, parallelism: 1 };
const SALT_BYTES = 16;
const HASH_BYTES = 32;
const FORM =
  /^\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/]{22,86})\$([A-Za-z0-9+/]{22,86})$/u;

/** Hashing takes memory and the threads that file I/O uses: few hashes run at a time, and the queue is bounded. */
const MAX_AT_ONCE = 2;
const MAX_WAITING = 64;
const WAIT_DEADLINE_MS = 10_000;
const slots = new Slots('sign-ins', { maxRunning: MAX_AT_ONCE, maxWaiting: MAX_WAITING });

export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(SALT_BYTES);
  const hash = await derive(password, salt, COST);
  const { memory, passes, parallelism } = COST;
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${toText(salt)}$${toText(hash)}`;
}

/** Returns whether the password matches, and whether its hash has other parameters than new hashes have. */
export async function verifyPassword(
  password: string,
  stored: string,
): Promise<{ isRight: boolean; isOutdated: boolean }> {
  const [, memory, passes, parallelism, salt = '', hash = ''] = FORM.exec(stored) ?? [];
  if (hash === '') throw new Error('a stored password has a form that this version does not know');
  const cost = { memory: Number(memory), passes: Number(passes), parallelism: Number(parallelism) };
  const expected = Buffer.from(hash, 'base64');
  const given = await derive(password, Buffer.from(salt, 'base64'), cost, expected.length);
  const isOutdated = (Object.keys(COST) as (keyof Cost)[]).some((name) => cost[name] !== COST[name]);
  return { isRight: timingSafeEqual(given, expected), isOutdated };
}

/** Does the work of a comparison for an unknown account, so that both cases take the same time. */
export async function pretendToVerify(password: string): Promise<void> {
  await derive(password, randomBytes(SALT_BYTES), COST);
}

async function derive(password: string, salt: Buffer, cost: Cost, tagLength = HASH_BYTES): Promise<Buffer> {
  // Text that looks the same on two keyboards should be the same password (RFC 8265).
  const message = password.normalize('NFC');
  const waiting = new AbortController();
  const tooLong = new AppError('capacity', 'too many sign-ins are waiting; try again later');
  const timer = setTimeout(() => waiting.abort(tooLong), stretched(WAIT_DEADLINE_MS));
  try {
    return await slots.run(waiting.signal, () =>
      hashAsync('argon2id', { message, nonce: salt, tagLength, ...cost }),
    );
  } finally {
    clearTimeout(timer);
  }
}

function toText(bytes: Buffer): string {
  return bytes.toString('base64').replace(/=+$/u, '');
}
