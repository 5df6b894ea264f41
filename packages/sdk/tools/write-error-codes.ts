/** Run `node packages/sdk/tools/write-error-codes.ts` after a change of the error codes in the contract. */
import { writeFileSync } from 'node:fs';
import { ERROR_CODES_FILE, renderErrorCodes } from './error-codes-source.ts';

writeFileSync(ERROR_CODES_FILE, renderErrorCodes());
