/** Measures the first visit of the dashboard, with an empty cache, until the list of sandboxes can be used. */
import { Browser } from '../e2e/fixtures/api/browser.ts';
import { Visitor } from '../e2e/fixtures/dashboard/visitor.ts';
import { startPrepared } from '../e2e/fixtures/service/prepared-service.ts';
import { interleave } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 20;

/** Returns the milliseconds until `ready` is visible. */
async function load(visitor: Visitor, path: string, ready: string): Promise<number> {
  const { page } = visitor;
  await page.goto('about:blank');
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Network.clearBrowserCache');
  await devtools.detach();
  const startedAt = performance.now();
  await page.goto(visitor.service.address + path, { waitUntil: 'commit' });
  await page.getByRole('link', { name: ready }).first().waitFor();
  return performance.now() - startedAt;
}

export async function benchDashboard(): Promise<Figure[]> {
  await using service = await startPrepared();
  await using browser = await Browser.start();
  await using visitor = await Visitor.signUp(browser, service);
  const values = await interleave(
    [
      { name: 'the list of sandboxes', run: () => load(visitor, '/sandboxes', 'New sandbox') },
      { name: 'a page of the documentation', run: () => load(visitor, '/docs', 'Quick start') },
    ],
    ROUNDS,
  );
  const name = 'first visit of the dashboard, until it can be used';
  return [compare({ name, against: 'a static page of the same service', goal: '< 1 s', unit: 'ms', values })];
}

if (import.meta.main) report('dashboard', 'no VM is measured', await benchDashboard());
