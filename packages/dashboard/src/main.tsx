import { render } from 'preact';
import { App } from './app/App.tsx';
import { followEvents } from './service/live-events.ts';
import { followSandboxes } from './service/sandboxes.ts';
import { loadSession } from './service/session.ts';
import './styles/base.css';
import './styles/controls.css';
import './styles/layout.css';
import './styles/content.css';

const root = document.getElementById('app');
if (root === null) throw new Error('the document has no element with id "app"');
render(<App />, root);
followEvents();
followSandboxes();
// Not awaited here: pages that are loaded later import from the script of this file, and would wait, too.
void loadSession();
