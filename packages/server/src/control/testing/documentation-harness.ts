/** A control in its own process that serves the real documentation. */
import { fileURLToPath } from 'node:url';
import { startSiteHarness, type SiteHarness } from './site-harness.ts';

const BUILDER = fileURLToPath(new URL('../../../../docs-site/src/write-site.ts', import.meta.url));

/** Builds the documentation, as set-up does, and starts a control with it. */
export function startDocumentationHarness(): Promise<SiteHarness> {
  return startSiteHarness({ name: 'documentation', builder: BUILDER, setting: 'documentationDir' });
}
