/** The unpacking role alone, for tests that start it from its sources. */
import { runUnpackRole } from './unpack-role.ts';

await runUnpackRole(process.argv.at(-1) ?? '');
