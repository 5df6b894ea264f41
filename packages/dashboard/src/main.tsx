import { render } from 'preact';
import { App } from './app/App.tsx';

const root = document.getElementById('app');
if (root === null) throw new Error('the document has no element with id "app"');
render(<App />, root);
