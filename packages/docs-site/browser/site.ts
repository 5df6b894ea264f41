/** Everything that pages do beyond HTML: search, the theme switch, copy buttons, the mark in the list of headings. */
import { addCopyButtons } from './copy-buttons.ts';
import { followHeadings } from './follow-headings.ts';
import { addSearch } from './search-dialog.ts';
import { addThemeSwitch } from './theme-switch.ts';

addThemeSwitch();
addCopyButtons();
addSearch();
followHeadings();
document.querySelector('.navigation [aria-current="page"]')?.scrollIntoView({ block: 'nearest' });
window.scrollTo({ top: window.scrollY });
