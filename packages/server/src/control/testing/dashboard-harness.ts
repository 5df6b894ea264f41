/** A control in its own process that serves the real dashboard. */
import { fileURLToPath } from 'node:url';
import { startSiteHarness, type SiteHarness } from './site-harness.ts';

const BUILDER = fileURLToPath(new URL('../../../../dashboard/write-dashboard.ts', import.meta.url));

/** Builds the dashboard, as set-up does, and starts a control with it. */
export function startDashboardHarness(): Promise<SiteHarness> {
  return startSiteHarness({ name: 'dashboard', builder: BUILDER, setting: 'dashboardDir' });
}
