/** Run `node packages/server/src/control/http/write-reference-docs.ts` after a change of schemas or of error codes. */
import { readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { renderErrors, renderOpenApi } from './reference-docs.ts';

const REFERENCE = new URL('../../../../../docs/reference/', import.meta.url);
const PACKAGE = new URL('../../../package.json', import.meta.url);

const { version } = z.object({ version: z.string() }).parse(JSON.parse(readFileSync(PACKAGE, 'utf8')));
writeFileSync(new URL('openapi.json', REFERENCE), await renderOpenApi(version));
writeFileSync(new URL('errors.md', REFERENCE), renderErrors());
