/** The cursor from which a list continues: the last element of the previous page, opaque to callers. */
import { AppError } from '@coppice/contract';

export interface Position {
  createdAt: number;
  id: string;
}

export function formatCursor({ createdAt, id }: Position): string {
  return Buffer.from(`${createdAt}:${id}`).toString('base64url');
}

/** Throws `invalid_request` for text that `formatCursor` did not make. */
export function parseCursor(cursor: string): Position {
  const match = /^(\d{1,15}):([a-z0-9]{1,64})$/.exec(Buffer.from(cursor, 'base64url').toString('latin1'));
  if (match?.[1] === undefined || match[2] === undefined) {
    throw new AppError('invalid_request', 'cursor: is not one that a Link header gave; begin without it');
  }
  return { createdAt: Number(match[1]), id: match[2] };
}
