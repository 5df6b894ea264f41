/** Run `node packages/docs-site/src/write-site.ts DIRECTORY` to look at the files of the site; set-up runs it, too. */
import { fileURLToPath } from 'node:url';
import { writeSite } from './build-site.ts';

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error('usage: write-site.ts DIRECTORY');
await writeSite(fileURLToPath(new URL('../../../', import.meta.url)), directory);
