import { newId } from '../../lib/new-id.ts';

export function newCommandId(): string {
  return newId('cmd');
}
