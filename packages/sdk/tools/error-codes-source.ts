/** Renders the error codes of the client from the table of the contract, which the published client cannot import. */
import { ERRORS } from '@coppice/contract';

/** Path of the file that {@link renderErrorCodes} makes. */
export const ERROR_CODES_FILE = new URL('../src/transport/error-codes.ts', import.meta.url);

/** Returns the source of `src/transport/error-codes.ts`. A test compares it with the file. */
export function renderErrorCodes(): string {
  return [
    '/** Made by `node packages/sdk/tools/write-error-codes.ts` from the table of the contract. Do not edit. */',
    'export const SERVICE_ERROR_CODES = [',
    ...Object.keys(ERRORS).map((code) => `  '${code}',`),
    '] as const;',
    '',
  ].join('\n');
}
