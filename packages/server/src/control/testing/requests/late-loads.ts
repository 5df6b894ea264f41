/** A program: preloads the server, builds another one, and prints which files each of the two loaded, as JSON. */
import { registerHooks } from 'node:module';
import { buildIdleServer } from '../../http/idle-server.ts';
import { preloadServer } from '../../http/preload.ts';

export interface LateLoads {
  /** URLs of files. */
  byPreload: string[];
  byServer: string[];
  document: string;
}

const loaded: string[] = [];
registerHooks({
  load: (url, context, next) => {
    if (url.startsWith('file:')) loaded.push(url);
    return next(url, context);
  },
});
await preloadServer('1');
const byPreload = loaded.splice(0);
const app = await buildIdleServer('1');
const document = JSON.stringify(app.swagger());
await app.close();
process.stdout.write(JSON.stringify({ byPreload, byServer: loaded, document } satisfies LateLoads));
