import { pino, type Logger } from 'pino';

/** Paths that hold secrets wherever an object with them is logged. */
const REDACTED = [
  'authorization',
  '*.authorization',
  'headers.authorization',
  'req.headers.authorization',
  'apiKey',
  '*.apiKey',
  'token',
  '*.token',
];

/** JSON lines on standard error, so that standard output stays for people. */
export function createLog(role: string, level: string): Logger {
  return pino(
    { level, base: { role, pid: process.pid }, redact: REDACTED, timestamp: pino.stdTimeFunctions.isoTime },
    pino.destination(2),
  );
}
