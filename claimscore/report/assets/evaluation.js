/* The page of an evaluation: its tables are there; the figures are drawn here. */
import { drawFigures } from "./charts.js";
import { addCopyButtons } from "./dom.js";

addCopyButtons();
drawFigures().then(() => { document.documentElement.dataset.ready = "#overview"; });
