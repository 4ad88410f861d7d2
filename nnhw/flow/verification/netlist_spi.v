// A netlist behind its SPI port, entered at byte streams: what a microcontroller does that watches the interrupt line.
module top(
    input clk, input rst,
    input [7:0] i__payload, input i__valid, output i__ready,
    output reg [7:0] o__payload, output reg o__valid, input o__ready
);
    localparam CLOCK_HZ = 48000000, RATE = 6000000;
    localparam DIVISOR = (CLOCK_HZ + RATE / 2) / RATE; // cycles of a bit
    localparam IDLE = 0, LOW = 1, HIGH = 2;
    reg cs = 1, sck = 0;
    wire copi, cipo, irq;
    netlist netlist(.clk(clk), .spi_cs(cs), .spi_sck(sck), .spi_copi(copi), .spi_cipo(cipo), .spi_irq(irq));

    // A transfer for each byte, while there are some to send, or some wait: mode 0, highest bit first.
    reg [1:0] state = IDLE;
    reg [7:0] sending = 0, taken = 0;
    reg [3:0] left = 0;
    reg [15:0] pause = 15;
    assign copi = sending[7];
    assign i__ready = state == IDLE && pause == 0;
    initial begin
        o__valid = 0;
        o__payload = 0;
    end
    always @(posedge clk) begin
        if (o__ready) o__valid <= 0;
        if (pause != 0) pause <= pause - 1;
        else if (state == IDLE) begin
            if (i__valid || irq) begin
                cs <= 0;
                sending <= i__valid ? i__payload : 8'h00;
                left <= 8;
                pause <= 6;
                state <= LOW;
            end
        end else if (state == LOW) begin
            sck <= 1;
            taken <= {taken[6:0], cipo};
            pause <= DIVISOR / 2 - 1;
            state <= HIGH;
        end else begin
            sck <= 0;
            sending <= {sending[6:0], 1'b0};
            left <= left - 1;
            pause <= DIVISOR - DIVISOR / 2 - 1;
            state <= LOW;
            if (left == 1) begin
                cs <= 1;
                o__payload <= taken;
                o__valid <= 1;
                pause <= 7;
                state <= IDLE;
            end
        end
    end
endmodule
