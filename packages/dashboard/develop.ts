/**
 * Run `node packages/dashboard/develop.ts [SERVICE] [PORT]` to work on the dashboard: each change shows at once, with the
 * data of a running service, by default the one at http://127.0.0.1:8080.
 */
import { createServer, type ProxyOptions } from 'vite';
import { VITE_OPTIONS } from './vite-options.ts';

const [service = 'http://127.0.0.1:8080', port = '5173'] = process.argv.slice(2);

const target: ProxyOptions = {
  target: service,
  changeOrigin: true,
  ws: true,
  // The service accepts changes from its own pages only.
  headers: { origin: service },
  // Without it, the status of a stream waits for its first event.
  configure: (proxy) =>
    proxy.on('proxyRes', (_answer, _request, response) => setImmediate(() => response.flushHeaders())),
};
const server = await createServer({
  ...VITE_OPTIONS,
  server: {
    host: '127.0.0.1',
    port: Number(port),
    strictPort: true,
    proxy: { '/v1': target, '/files': target, '/account': target, '/healthz': target, '/docs': target },
  },
});
await server.listen();
server.printUrls();
